"""What is counted of days with Spark: all that `kept_days` keeps follows from these frames.

A day is that of the failure, and all records of one explicit wait share it, so deliveries never
cross days. Each frame depends on the rows of a day, and `open` on the commits as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.deliveries import deliveries, failure_columns
from ackfloor_monitoring.spark.report.overview import topic_days
from ackfloor_monitoring.spark.table.columns import IDENTITY
from ackfloor_monitoring.spark.table.settled_rows import with_settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The column of the day that a row belongs to, in ISO 8601.
DAY = "kept_day"
# Lives are summed up in so many tasks where days are many.
_MOST_TASKS = 16


class DayFrames:
    """The frames of some days.

    Args:
        failures: rows of the table, with `DAY`.
        days: how many days that are.
    """

    def __init__(self, failures: DataFrame, days: int) -> None:
        self._failures = failures
        self._rows = failure_columns(failures, DAY)
        self._days = days

    def topics(self) -> DataFrame:
        """The rows of each topic."""
        return topic_days(self._rows, DAY)

    def counts(self) -> DataFrame:
        """Those of the report, by parts of a day: a stretch of a longer period is one or more."""
        return counts.counts(deliveries(self._rows, shared=(DAY,)), counts.part_of_day(), DAY)

    def calls(self) -> DataFrame:
        """How often a failed call took how many milliseconds."""
        return counts.calls(deliveries(self._rows, shared=(DAY,)), DAY)

    def samples(self, counted: DataFrame) -> DataFrame:
        """The latest failure of each cause, with its message.

        Args:
            counted: from `counts`.
        """
        return counts.latest(self._failures, counted, DAY)

    def parts(self) -> DataFrame:
        """What a day adds to each life, with `message` and `key_hash`."""
        known = self._rows.where(F.col("origin_offset").isNotNull())
        tasks = min(_MOST_TASKS, 2 * self._days)
        # One shuffle: what is partitioned by offset is partitioned by lives.
        delivered = deliveries(known, shared=(DAY,)).repartition(tasks, "origin_offset")
        return lives.parts(delivered, {}, day=(DAY,)).select(
            DAY,
            lives.message_hash().alias("message"),
            lives.key_hash().alias("key_hash"),
            "group",
            "origin_topic",
            "origin_partition",
            "origin_offset",
            "key",
            "replays",
            *lives.PART,
        )

    def dead_letters(self) -> DataFrame:
        """By whom and of what each life died: `message`, `replays`, `handler`, `cause`."""
        message = lives.message_hash().alias("message")
        died = lives.dead_letters(self._rows, DAY)
        return died.select(DAY, message, "replays", "handler", "cause")

    def open(self, commits: DataFrame) -> DataFrame:
        """The retry records of known origin that no commit settles.

        Args:
            commits: rows of `settled_rows.COMMIT`.
        """
        waiting = self._rows.where("origin_offset is not null and stage = 'retry'")
        unsettled = with_settled(waiting, commits).where("settled is null or not settled")
        message = lives.message_hash().alias("message")
        return unsettled.select(DAY, message, "group", "replays", *IDENTITY)
