"""Actions: what operators did, with the console or the command line, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ackfloor.operations import ActionNote
from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Characters of an address.
LONGEST: Final = 100


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    found = None if known.actions is None else known.actions.value
    if found is None:
        return {"notes": [], "taken_ms": []}
    return {"notes": [_row(each) for each in found.notes], "taken_ms": [found.taken_ms]}


def _row(note: ActionNote) -> Mapping[str, Any]:
    # Whoever may write the topic can write anything. A console notes the address of the browser.
    return {"note": note, "address": str(note.arguments.get("from", ""))[:LONGEST]}


ACTIONS = Page("actions", "Actions", "a", facts, asks_actions=True)
