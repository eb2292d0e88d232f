"""The report's tables as sums over `counts`: causes, handlers, retry topics, releases, times.

The counts are some thousand rows, however large the table is, in an Arrow table: Spark would need
longer to plan one of these sums than Arrow for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# A row, by column.
Sums = Mapping[str, Any]
_CAUSE = ("group", "handler", "cause")
_BEFORE_ALL_MS = -(2**62)
_NO_TIME = pa.scalar(None, pa.int64())


def totals(counts: pa.Table) -> dict[str, int]:
    """Records of each kind, and what could not be read."""
    names = ("records", "failures", "hops", "replays", "behind", "unreadable", "without_origin")
    return {name: pc.sum(counts[name]).as_py() or 0 for name in names}


def over_time(counts: pa.Table) -> list[Sums]:
    """Failures of the period by stretch of time, handler and reason, in this order."""
    by = ("start", "group", "handler", "reason")
    drawn = counts.filter(pc.is_valid(counts["start"]))
    rows = _summed(_failed(drawn), by, {"failures": ("failures", "sum")})
    return sorted(rows, key=lambda row: (row["start"], *(row[name] or "" for name in by[1:])))


def failure_groups(counts: pa.Table) -> list[Sums]:
    """Failures by cause: how many, since and until when, in which releases, and their trend.

    `trend` maps the start of a stretch of time to its failures. Failures outside of the period
    count; when the cause was seen first and last they say only where all of it lies there.
    """
    failed = _with_drawn_times(_failed(counts))
    dead = pc.if_else(pc.equal(failed["stage"], "dlq"), failed["failures"], 0)
    rows = _summed(
        failed.append_column("dead", dead),
        _CAUSE,
        {
            "failures": ("failures", "sum"),
            "dead": ("dead", "sum"),
            "first": ("first", "min"),
            "last": ("last", "max"),
            "first_drawn": ("first_drawn", "min"),
            "last_drawn": ("last_drawn", "max"),
            "error_types": ("error_type", "distinct"),
            "fingerprints": ("error_fingerprint", "distinct"),
            "releases": ("release", "distinct"),
        },
    )
    trends: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
    for row in _summed(failed, (*_CAUSE, "start"), {"failures": ("failures", "sum")}):
        trends[tuple(row[name] for name in _CAUSE)][row["start"]] = row["failures"]
    return [
        {
            **row,
            **{name: _drawn(row, name) for name in ("first", "last")},
            "error_type": max(_named(row["error_types"]), default=None),
            "fingerprint": max(_named(row["fingerprints"]), default=None),
            "releases": sorted(_named(row["releases"])),
            "trend": trends[tuple(row[name] for name in _CAUSE)],
        }
        for row in rows
    ]


def releases(counts: pa.Table) -> dict[str, int]:
    """When each release failed first, in milliseconds; in the period where it failed there."""
    first = {name: (name, "min") for name in ("first", "first_drawn")}
    rows = _summed(_with_drawn_times(_failed(counts)), ("release",), first)
    return {row["release"]: _drawn(row, "first") for row in rows if row["release"] is not None}


def handlers(counts: pa.Table) -> list[Sums]:
    """Timeouts and other failures by handler. Where the budget ran out, by the last cause."""
    failed = _failed(counts)
    timed_out = pc.or_kleene(
        pc.equal(failed["reason"], "timeout"), pc.equal(failed["error_type"], "ConsumeTimeout")
    )
    timeouts = pc.if_else(pc.fill_null(timed_out, False), failed["failures"], 0)
    rows = _summed(
        failed.append_column("timeouts", timeouts),
        ("group", "handler"),
        {"failures": ("failures", "sum"), "timeouts": ("timeouts", "sum")},
    )
    return [{**row, "errors": row["failures"] - row["timeouts"]} for row in rows]


def tiers(counts: pa.Table) -> list[Sums]:
    """Which tiers the policy sent the records of each attempt to, of first lives."""
    failed = _failed(counts)
    kept = failed.filter(pc.and_(failed["first_life"], pc.is_valid(failed["tier"])))
    return _summed(kept, ("group", "handler", "attempt"), {"tiers": ("tier", "distinct")})


def topic_handlers(counts: pa.Table) -> pa.Table:
    """The handler of each source topic in a group; of one that was renamed the latest name.

    Columns: `group`, `origin_topic`, `handler`.
    """
    by = ["group", "origin_topic"]
    named = _with_drawn_times(counts.filter(pc.is_valid(counts["handler"])))
    # What lies outside of the period says last who it is.
    order = pc.fill_null(named["last_drawn"], _BEFORE_ALL_MS)
    named = named.append_column("order", order).sort_by(
        [("order", "ascending"), ("handler", "ascending")]
    )
    # One thread goes through the rows in their order.
    latest = named.group_by(by, use_threads=False).aggregate([("handler", "last")])
    return latest.rename_columns([*by, "handler"])


def _with_drawn_times(counts: pa.Table) -> pa.Table:
    """With `first_drawn` and `last_drawn`: the times of these, null outside of the period."""
    drawn = pc.is_valid(counts["start"])
    for name in ("first", "last"):
        counts = counts.append_column(f"{name}_drawn", pc.if_else(drawn, counts[name], _NO_TIME))
    return counts


def _drawn(row: Sums, name: str) -> int:
    """A time of a sum: that of the period, where there is one."""
    drawn: int | None = row[f"{name}_drawn"]
    return row[name] if drawn is None else drawn


def _failed(counts: pa.Table) -> pa.Table:
    return counts.filter(pc.greater(counts["failures"], 0))


def _summed(table: pa.Table, by: Sequence[str], sums: Mapping[str, tuple[str, str]]) -> list[Sums]:
    """Rows by the columns of `by`, with sums, each from a column and Arrow's name of how."""
    found = table.group_by(list(by)).aggregate(list(sums.values()))
    rows: list[Sums] = (
        found.select([*by, *(f"{column}_{how}" for column, how in sums.values())])
        .rename_columns([*by, *sums])
        .to_pylist()
    )
    return rows


def _named(values: Sequence[str | None]) -> list[str]:
    return [value for value in values if value is not None]
