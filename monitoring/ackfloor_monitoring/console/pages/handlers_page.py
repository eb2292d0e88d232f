"""Handlers: what each has to do, and whether it is paused; who may act pauses it and lets it go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    runs = known.runs.value
    if runs is None:
        return {"handlers": [], "taken_ms": []}
    handlers = sorted(runs.handlers(), key=lambda row: (row["group"], row["handler"], row["run"]))
    return {"handlers": handlers, "taken_ms": [runs.taken_ms]}


HANDLERS = Page("handlers", "Handlers", "h", facts)
