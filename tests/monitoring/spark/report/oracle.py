"""The report's figures once more, from pandas and plain loops: no Spark, and none of its code."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

Message = tuple[str, str, int, int]


@dataclass
class Life:
    """One run of a message through the policy."""

    handler: str | None = None
    key: bytes | None = None
    attempts: Counter[int] = field(default_factory=Counter)
    first_failed: list[Any] = field(default_factory=list)
    due: list[Any] = field(default_factory=list)
    died: list[Any] = field(default_factory=list)
    tier_records: int = 0
    open: bool = False

    @property
    def outcome(self) -> str:
        """How it ended."""
        return "dead" if self.died else "waiting" if self.open else "recovered"


class Oracle:
    """Counts over the rows of a table whose commits are all known.

    Args:
        rows: the table.
        open_records: (topic, partition, offset) of the tier records that are not settled.
    """

    def __init__(self, rows: pd.DataFrame, open_records: set[tuple[str, int, int]]) -> None:
        rows = rows.astype({"replays": "Int64", "attempt": "Int64"})
        rows["replays"] = rows["replays"].fillna(0).astype(int)
        rows["attempt"] = rows["attempt"].fillna(0).astype(int)
        rows = rows.sort_values(["kafka_time", "topic", "partition", "offset"])
        self.rows = rows
        self.kinds: list[str] = []
        self.lives: dict[tuple[Message, int], Life] = defaultdict(Life)
        waits: set[object] = set()
        for row in rows.itertuples():
            kind = self._kind(row, waits)
            self.kinds.append(kind)
            if row.origin_offset is not None and not pd.isna(row.origin_offset):
                self._live(row, kind, (row.topic, row.partition, row.offset) in open_records)
        self.failed = rows[[kind == "failed" for kind in self.kinds]]

    @staticmethod
    def _kind(row: Any, waits: set[object]) -> str:
        if row.replays and not row.attempt:
            return "replay"
        if pd.isna(row.retry_at):
            return "failed"
        wait = (row.group, row.origin_topic, row.origin_partition, row.origin_offset,
                row.replays, row.attempt, row.failed_at)  # fmt: skip
        if wait in waits:
            return "hop"
        waits.add(wait)
        return "failed"

    def _live(self, row: Any, kind: str, is_open: bool) -> None:
        message = (row.group, row.origin_topic, int(row.origin_partition), int(row.origin_offset))
        life = self.lives[message, row.replays]
        life.handler, life.key = row.handler, row.key
        life.attempts[row.attempt] += kind == "failed"
        life.first_failed.append(row.first_failed_at)
        if row.stage == "dlq":
            life.died.append(row.event_time)
        else:
            life.tier_records += 1
            life.due.append(row.not_before)
            life.open |= is_open

    def outcomes(self) -> Counter[str]:
        """Messages by the outcome of their last life."""
        last: dict[Message, tuple[int, str]] = {}
        for (message, replays), life in self.lives.items():
            last[message] = max(last.get(message, (-1, "")), (replays, life.outcome))
        return Counter(outcome for _, outcome in last.values())

    def over_time(self) -> dict[tuple[object, ...], int]:
        """Failures by day, group, handler and reason."""
        day = self.failed["event_time"].dt.floor("D")
        return count_by(zip(day, *self._columns("group", "handler", "reason"), strict=True))

    def groups(self) -> dict[tuple[object, ...], pd.DataFrame]:
        """The failures of each cause."""
        cause = self.failed["error_fingerprint"].fillna(self.failed["error_type"])
        cause = cause.fillna(self.failed["reason"]).fillna("unknown")
        keyed = self.failed.assign(cause=cause)
        return dict(iter(keyed.groupby(["group", "handler", "cause"], dropna=False)))

    def ended(self) -> Counter[tuple[object, ...]]:
        """First lives by handler, failed deliveries and outcome."""
        return Counter(
            (message[0], life.handler, max(life.attempts), life.outcome)
            for (message, replays), life in self.lives.items()
            if not replays
        )

    def times(self, outcome: str) -> dict[tuple[object, ...], tuple[int, list[float]]]:
        """Messages and percentiles of the seconds to an outcome, by handler; first lives."""
        taken: dict[tuple[object, ...], list[float]] = defaultdict(list)
        for (message, replays), life in self.lives.items():
            if not replays and life.outcome == outcome:
                end = min(life.died) if outcome == "dead" else max(life.due)
                spent = (end - min(life.first_failed)).total_seconds()
                taken[message[0], life.handler].append(spent)
        return {who: (len(each), percentiles(each)) for who, each in taken.items()}

    def replayed(self) -> Counter[tuple[object, ...]]:
        """Replayed lives by handler and outcome."""
        return Counter(
            (message[0], life.handler, life.outcome)
            for (message, replays), life in self.lives.items()
            if replays
        )

    def healed(self) -> dict[tuple[object, ...], tuple[int, int]]:
        """By handler and cause of the dead letter: replays, and how many of them recovered."""
        causes: dict[tuple[Message, int], tuple[object, ...]] = {}
        for row in self.rows[self.rows.stage == "dlq"].itertuples():
            if not pd.isna(row.origin_offset):
                message = (row.group, row.origin_topic, int(row.origin_partition),
                           int(row.origin_offset))  # fmt: skip
                named = (row.error_fingerprint, row.error_type, row.reason, "unknown")
                cause = next(name for name in named if not pd.isna(name))
                causes[message, row.replays] = row.group, row.handler, cause
        told: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0, 0])
        for (message, replays), life in self.lives.items():
            if (before := causes.get((message, replays - 1))) is not None:
                told[before][0] += 1
                told[before][1] += life.outcome == "recovered"
        return {cause: (replayed, healed) for cause, (replayed, healed) in told.items()}

    def keys(self) -> Counter[tuple[object, ...]]:
        """Failures by group, topic and key."""
        told: Counter[tuple[object, ...]] = Counter()
        for (message, _), life in self.lives.items():
            told[message[0], message[1], life.key] += sum(life.attempts.values())
        return told

    def duplicates(self) -> Counter[tuple[object, ...]]:
        """Failures of an attempt that had failed before, by handler."""
        told: Counter[tuple[object, ...]] = Counter()
        for (message, _), life in self.lives.items():
            told[message[0], life.handler] += sum(
                number - 1 for attempt, number in life.attempts.items() if attempt and number > 1
            )
        return told

    def traffic(self) -> dict[tuple[object, ...], tuple[int, int]]:
        """By group and topic: the input that is seen, and tier records."""
        spans: dict[tuple[object, ...], list[int]] = defaultdict(list)
        tier_records: Counter[tuple[object, ...]] = Counter()
        for ((group, topic, partition, offset), _), life in self.lives.items():
            spans[group, topic, partition].append(offset)
            tier_records[group, topic] += life.tier_records
        seen: Counter[tuple[object, ...]] = Counter()
        for (group, topic, _), offsets in spans.items():
            seen[group, topic] += max(offsets) - min(offsets) + 1
        return {who: (seen[who], tier_records[who]) for who in seen}

    def partitions(self) -> dict[tuple[object, ...], tuple[int, float]]:
        """By source partition: failures, and how many times its topic's average that is."""
        counted: Counter[tuple[object, ...]] = Counter()
        for ((group, topic, partition, _), _), life in self.lives.items():
            counted[group, topic, partition] += sum(life.attempts.values())
        of_topic: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for (group, topic, _), number in counted.items():
            of_topic[group, topic].append(number)
        return {
            who: (number, number / statistics.fmean(of_topic[who[:2]]))
            for who, number in counted.items()
        }

    def handlers(self) -> dict[tuple[object, ...], tuple[int, int, list[float]]]:
        """By handler: timeouts, errors, and percentiles of the seconds that failed calls took."""
        told = {}
        for who, rows in self.failed.groupby(["group", "handler"]):
            timeouts = int(
                ((rows.reason == "timeout") | (rows.error_type == "ConsumeTimeout")).sum()
            )
            took = [ms / 1000 for ms in rows.duration_ms]
            told[who] = timeouts, len(rows) - timeouts, [*percentiles(took), max(took)]
        return told

    def _columns(self, *names: str) -> list[list[object]]:
        return [[None if pd.isna(v) else v for v in self.failed[name]] for name in names]


def percentiles(values: Iterable[float]) -> list[float]:
    """The 50th, 95th and 99th, between neighbours as they lie."""
    return [float(value) for value in np.percentile(list(values), (50, 95, 99))]


def count_by(keys: Iterable[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    """How often each key comes."""
    return dict(Counter(keys))
