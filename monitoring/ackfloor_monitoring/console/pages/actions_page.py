"""Actions: what operators did, with the console or the command line, the newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    found = None if known.actions is None else known.actions.value
    if found is None:
        return {"notes": [], "taken_ms": []}
    return {"notes": found.notes, "taken_ms": [found.taken_ms]}


ACTIONS = Page("actions", "Actions", "a", facts, asks_actions=True)
