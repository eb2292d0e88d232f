"""Lanes: keys and partitions that wait for a record that failed, and what can be done to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from ackfloor_monitoring.console.pages.console_page import Known, Page
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

Row = Mapping[str, Any]
#: Rows of a page: more than a person reads.
MOST: Final = 200
#: From so many characters on, a run cuts a key.
_CUT: Final = 200
#: The parts of a handler's lanes, each with what it says of them.
PARTS: Final[Mapping[str, str]] = {
    "held": "Held: the record is dead-lettered, and its key waits until an operator frees it",
    "quarantined": "Quarantined: the record is in a retry topic, and its key waits for it",
    "blocked": "Blocked: the record is tried again in place, and its lane waits for it",
}


def facts(cluster: Cluster, known: Known) -> Row:
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
            "parts": list(_parts((lanes := list(each))[:MOST], cluster)),
            "left_out": counts[group, handler] - min(len(lanes), MOST),
            "count": counts[group, handler],
        }
        for (group, handler), each in groupby(rows, lambda row: (row["group"], row["handler"]))
    ]
    return {"handlers": handlers, "waiting": counts.total(), "taken_ms": [runs.taken_ms]}


def _parts(rows: Iterable[Row], cluster: Cluster) -> Iterator[tuple[str, list[Row]]]:
    """What the parts are, and their rows, in the order that they have; of those that have some."""
    found: dict[str, list[Row]] = {name: [] for name in PARTS}
    for row in rows:
        name = "held" if row["head"] == "held" else row["state"]
        found[name].append({**row, "found_by": _found_by(row, cluster)})
    yield from ((PARTS[name], some) for name, some in found.items() if some)


def _found_by(row: Row, cluster: Cluster) -> Mapping[str, str]:
    """The searches for dead letters: of the lane's handler, and where it can be asked, of its key.

    A key as a run shows it may be cut, or what `[redaction]` leaves of it: that finds others.
    """
    asked = {"list": "1", "group": row["group"], "handler": row["handler"]}
    found, key = {"handler": urlencode(asked)}, row["key"]
    if cluster.index is None or key is None or cluster.rules.key != "keep":
        return found
    whole = len(key) < _CUT and "***" not in key and "\\" not in key
    if whole and cluster.index.stored_key(key) is not None:
        found["key"] = urlencode({**asked, "key": key})
    return found


LANES = Page("lanes", "Lanes", "l", facts)
