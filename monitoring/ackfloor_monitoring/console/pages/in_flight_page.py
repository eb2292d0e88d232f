"""In flight: the records that handlers have now, the longest-running first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Rows of a page: more than a person reads.
MOST: Final = 200


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows."""
    runs = known.runs.value
    rows = sorted(
        runs.running() if runs is not None else (), key=lambda row: -float(row["running_s"])
    )
    running = sum(row["running"] for row in runs.handlers()) if runs is not None else 0
    return {
        "rows": [{**row, "where": _place(row["stack"])} for row in rows[:MOST]],
        "running": running,
        "left_out": running - min(len(rows), MOST),
        "taken_ms": [runs.taken_ms] if runs is not None else [],
    }


def _place(stack: Sequence[str]) -> str:
    """The innermost frame that is not the standard library's, or that one."""
    own = [frame for frame in stack if "/lib/python" not in frame]
    return next(reversed(own or stack), "")


IN_FLIGHT = Page("in-flight", "In flight", "i", facts)
