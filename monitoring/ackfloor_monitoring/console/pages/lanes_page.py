"""Lanes: keys and partitions that wait for a record that failed, and what can be done to them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

#: Rows of a page: more than a person reads.
MOST: Final = 200


def facts(cluster: Cluster, known: Known) -> Mapping[str, Any]:  # noqa: ARG001 -- pages are alike
    """What the template shows: the handlers, each with its lanes, the longest waiting first."""
    runs = known.runs.value
    if runs is None:
        return {"handlers": [], "waiting": 0, "taken_ms": []}
    rows = sorted(runs.lanes(), key=lambda row: (row["group"], row["handler"], -row["blocked_s"]))
    counts = runs.lane_counts()
    handlers = [
        {
            "group": group,
            "handler": handler,
            "lanes": (lanes := list(each))[:MOST],
            "left_out": counts[group, handler] - min(len(lanes), MOST),
            "count": counts[group, handler],
        }
        for (group, handler), each in groupby(rows, lambda row: (row["group"], row["handler"]))
    ]
    return {"handlers": handlers, "waiting": counts.total(), "taken_ms": [runs.taken_ms]}


LANES = Page("lanes", "Lanes", "l", facts)
