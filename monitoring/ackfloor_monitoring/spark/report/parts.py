"""Collected rows as parts of the report: names, seconds, shares, and in which order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ackfloor_monitoring.spark.report.answer import (
    Handler,
    HotKey,
    HotPartition,
    Replayed,
    Step,
    Times,
    Traffic,
)
from ackfloor_monitoring.spark.report.funnel import Owner, funnel_steps
from ackfloor_monitoring.spark.report.lives import OUTCOMES
from ackfloor_monitoring.spark.report.sums import Sums

# By group and source topic.
Handlers = Mapping[tuple[str | None, str | None], str | None]

MOST_PARTITIONS = 50
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def steps(
    outcome_counts: Sequence[Sums], tiers: Sequence[Sums], handlers: Handlers
) -> tuple[Step, ...]:
    """The retry funnel, of first lives."""
    waited = {(_owner(row), row["attempt"]): _by_length(row["tiers"]) for row in tiers}
    counted: Counter[tuple[Owner, int, str]] = Counter()
    for row in outcome_counts:
        if not row["replayed"]:
            outcome = OUTCOMES[row["outcome"]]
            counted[_reader(row, handlers), row["attempts"], outcome] += row["lives"]
    return funnel_steps(counted, waited)


def time_rows(rows: Sequence[Sums]) -> tuple[Times, ...]:
    """How long recovery and death took, by handler."""
    found = [
        Times(
            *_owner(row),
            row["recovered_messages"],
            _seconds(row["recovered"]),
            row["dead_messages"],
            _seconds(row["dead"]),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda t: (t.group or "", t.handler or "")))


def key_rows(rows: Sequence[Sums], failures: int) -> tuple[HotKey, ...]:
    """The hottest keys, most failures first."""
    order = sorted(
        rows, key=lambda k: (-k["failures"], k["group"] or "", k["origin_topic"] or "", k["key"])
    )
    return tuple(
        HotKey(
            row["group"],
            row["origin_topic"],
            key_text(bytes(row["key"])),
            row["failures"],
            row["messages"],
            row["dead"],
            row["failures"] / failures,
        )
        for row in order
    )


def partition_rows(rows: Sequence[Sums]) -> tuple[HotPartition, ...]:
    """The partitions furthest above their topic's average first."""
    of_topic: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for row in rows:
        of_topic[row["group"], row["origin_topic"]].append(row["failures"])
    found = []
    for row in rows:
        counts = of_topic[row["group"], row["origin_topic"]]
        average = sum(counts) / len(counts)
        times_average = row["failures"] / average if average else 0.0
        found.append(
            HotPartition(
                row["group"],
                row["origin_topic"],
                row["origin_partition"],
                row["failures"],
                row["messages"],
                times_average,
            )
        )
    found.sort(
        key=lambda p: (
            -p.times_average,
            -p.failures,
            p.group or "",
            p.topic or "",
            -1 if p.partition is None else p.partition,
        )
    )
    return tuple(found[:MOST_PARTITIONS])


def traffic_rows(rows: Sequence[Sums]) -> tuple[Traffic, ...]:
    """Retry traffic by topic, from its partitions."""
    sums: dict[tuple[str | None, str | None], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        total = sums[row["group"], row["origin_topic"]]
        for place, name in enumerate(("span", "messages", "tier_records")):
            total[place] += row[name]
    found = [
        Traffic(*names, span, messages, tier_records, tier_records / span)
        for names, (span, messages, tier_records) in sums.items()
    ]
    return tuple(sorted(found, key=lambda t: (-t.multiple, t.group or "", t.topic or "")))


def handler_rows(
    rows: Sequence[Sums],
    durations: Sequence[Sums],
    outcome_counts: Sequence[Sums],
    handlers: Handlers,
) -> tuple[Handler, ...]:
    """Timeouts, errors, duplicates and durations; the slowest handler first."""
    repeated: Counter[Owner] = Counter()
    for row in outcome_counts:
        repeated[_reader(row, handlers)] += row["duplicates"]
    took = {_owner(row): row["duration_ms"] for row in durations}
    found = [
        Handler(
            *_owner(row),
            row["timeouts"],
            row["errors"],
            repeated[_owner(row)],
            _seconds(took.get(_owner(row))),
        )
        for row in rows
    ]
    return tuple(
        sorted(
            found,
            key=lambda h: (-(h.duration_s or (0.0,) * 4)[1], h.group or "", h.handler or ""),
        )
    )


def replay_rows(outcome_counts: Sequence[Sums], handlers: Handlers) -> tuple[Replayed, ...]:
    """Replays by handler."""
    replays: dict[Owner, Counter[str]] = defaultdict(Counter)
    for row in outcome_counts:
        if row["replayed"]:
            replays[_reader(row, handlers)][OUTCOMES[row["outcome"]]] += row["lives"]
    found = [
        Replayed(*owner, counts.total(), *(counts[name] for name in OUTCOMES))
        for owner, counts in replays.items()
    ]
    return tuple(sorted(found, key=lambda r: (-r.replayed, r.group or "", r.handler or "")))


def with_replays(causes: Sequence[Sums], again: Sequence[Sums]) -> list[Sums]:
    """Causes with `replayed`, how many of their dead letters were, and `healed` of these.

    Args:
        causes: from `sums.failure_groups`.
        again: from `lives.replays_by_cause`.
    """
    names = ("replayed", "healed")
    found = {_cause(row): {name: row[name] for name in names} for row in again}
    return [{**row, **found.get(_cause(row), dict.fromkeys(names, 0))} for row in causes]


def key_text(key: bytes) -> str:
    """A key as people read it: text where it is printable text, else 0x and hexadecimal."""
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + key.hex()
    return text if text.isprintable() and text else "0x" + key.hex()


def _by_length(tiers: Sequence[str]) -> tuple[str, ...]:
    parts = {tier: re.fullmatch(r"([0-9]+)([a-z]+)", tier) for tier in tiers}
    return tuple(
        sorted(
            tiers, key=lambda tier: (_UNITS_MS[m[2]] * int(m[1]) if (m := parts[tier]) else 0, tier)
        )
    )


def _cause(row: Sums) -> tuple[str | None, ...]:
    return row["group"], row["handler"], row["cause"]


def _owner(row: Sums) -> Owner:
    return row["group"], row["handler"]


def _reader(row: Sums, handlers: Handlers) -> Owner:
    """The group and the handler of a source topic."""
    return row["group"], handlers.get((row["group"], row["origin_topic"]))


def _seconds(milliseconds: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if milliseconds is None else tuple(ms / 1000 for ms in milliseconds)
