"""The overview: the table's groups and topics, how many rows each has on which day."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.time_axis import (
    DAY_MS,
    EARLIEST_DAY,
    Period,
    day_after,
    drawn_days,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TOPIC = ("group", "topic", "stage")


@dataclass(frozen=True, slots=True)
class TopicDay:
    """The rows of one retry or dead-letter topic on one day.

    Attributes:
        day: counted from 1970; one for all days before Kafka, and one for all after tomorrow.
        first_ms, last_ms: the first and the last failure, in milliseconds.
    """

    group: str | None
    topic: str
    stage: str
    day: int
    records: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All topics in a table, at least one.

    Attributes:
        end: from `time_axis.day_after`.
    """

    days: Sequence[TopicDay]
    end: int

    @property
    def records(self) -> int:
        """How many rows."""
        return sum(each.records for each in self.days)

    @property
    def period(self) -> Period:
        """From the first failure to the last, without those that lie far from all others."""
        records: Counter[int] = Counter()
        for each in self.days:
            records[each.day] += each.records
        first, last = drawn_days(records, self.end)
        drawn = [each for each in self.days if first <= each.day <= last]
        return Period(min(each.first_ms for each in drawn), max(each.last_ms for each in drawn))

    @property
    def groups(self) -> tuple[str, ...]:
        """The consumer groups, those that have a name."""
        return tuple(sorted({each.group for each in self.days if each.group is not None}))

    @property
    def tiers(self) -> dict[str, list[str]]:
        """The retry topics by group."""
        found: dict[str, set[str]] = defaultdict(set)
        for each in self.days:
            if each.stage == "retry" and each.group is not None:
                found[each.group].add(each.topic)
        return {group: sorted(topics) for group, topics in found.items()}

    def outside(self, period: Period) -> int:
        """How many rows lie outside of a period."""
        return sum(
            each.records
            for each in self.days
            if each.last_ms < period.first_ms or each.first_ms > period.last_ms
        )


def overview(rows: DataFrame, made_at: datetime) -> Overview:
    """Look through the rows.

    Args:
        rows: from `deliveries.failure_columns`.
        made_at: now.
    """
    end = day_after(made_at)
    day = _known_day(F.col("event_time"), end).alias("day")
    return _of(rows.groupBy(*_TOPIC, day).agg(*_records()), end)


def topic_days(rows: DataFrame, day: str) -> DataFrame:
    """The rows of each topic on each day: `records`, `first_ms`, `last_ms`.

    Args:
        rows: from `deliveries.failure_columns`.
        day: the column of the day.
    """
    return rows.groupBy(day, *_TOPIC).agg(*_records())


def overview_of_days(topic_days: Iterable[Mapping[str, Any]], made_at: datetime) -> Overview:
    """The same from the rows of each day.

    Args:
        topic_days: rows of the frame of this name.
        made_at: now.
    """
    end = day_after(made_at)
    found: dict[tuple[Any, ...], TopicDay] = {}
    for row in topic_days:
        day = max(EARLIEST_DAY - 1, min(end, row["first_ms"] // DAY_MS))
        more = TopicDay(
            row["group"], row["topic"], row["stage"], day, row["records"],
            row["first_ms"], row["last_ms"],
        )  # fmt: skip
        key = (more.group, more.topic, more.stage, day)
        before = found.get(key)
        found[key] = (
            more
            if before is None
            else replace(
                more,
                records=before.records + more.records,
                first_ms=min(before.first_ms, more.first_ms),
                last_ms=max(before.last_ms, more.last_ms),
            )
        )
    return Overview(list(found.values()), end)


def _of(found: DataFrame, end: int) -> Overview:
    return Overview([TopicDay(**row) for row in found.toArrow().to_pylist()], end)


def _known_day(at: Column, end: int) -> Column:
    """Clocks may be wrong in a million ways: impossible days are two, however many there are."""
    day = F.floor(at / DAY_MS)
    return F.greatest(F.lit(EARLIEST_DAY - 1), F.least(F.lit(end), day))


def _records() -> tuple[Column, ...]:
    return (
        F.count("*").alias("records"),
        F.min("event_time").alias("first_ms"),
        F.max("event_time").alias("last_ms"),
    )
