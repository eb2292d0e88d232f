"""The overview: of which groups and topics there are rows, how many, and from when to when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Topic:
    """The rows of one retry or dead-letter topic; first and last failure in milliseconds."""

    group: str | None
    topic: str
    stage: str
    records: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All topics in a table."""

    topics: Sequence[Topic]

    @property
    def records(self) -> int:
        """How many rows."""
        return sum(topic.records for topic in self.topics)

    @property
    def first_ms(self) -> int:
        """The first failure."""
        return min(topic.first_ms for topic in self.topics)

    @property
    def last_ms(self) -> int:
        """The last one."""
        return max(topic.last_ms for topic in self.topics)

    @property
    def groups(self) -> tuple[str, ...]:
        """The consumer groups, those that have a name."""
        return tuple(sorted({topic.group for topic in self.topics if topic.group is not None}))

    @property
    def tiers(self) -> dict[str, list[str]]:
        """The retry topics by group."""
        found = defaultdict(list)
        for topic in self.topics:
            if topic.stage == "retry" and topic.group is not None:
                found[topic.group].append(topic.topic)
        return dict(found)


def overview(rows: DataFrame) -> Overview:
    """Look through the rows.

    Args:
        rows: from `deliveries.failure_columns`.
    """
    found = (
        rows.groupBy("group", "topic", "stage")
        .agg(
            F.count("*").alias("records"),
            F.min("event_time").alias("first_ms"),
            F.max("event_time").alias("last_ms"),
        )
        .collect()
    )
    return Overview([Topic(*row) for row in found])
