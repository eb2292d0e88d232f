"""Failures counted once, by all columns of the report's tables.

`counts` has some thousand rows, however many deliveries there are; `sums` adds them up. Only
numbers are aggregated, never text: for text Spark would sort all rows; numbers it can hash.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.deliveries import cause
from ackfloor_monitoring.spark.report.time_axis import TO_MONDAY_MS, Period
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BY = (
    "group", "origin_topic", "handler", "reason", "error_type", "error_fingerprint", "release",
    "stage", "attempt", "tier",
)  # fmt: skip


def counts(deliveries: DataFrame, period: Period) -> DataFrame:
    """Records and failures by stretch of time, handler, cause and the columns of `_BY`.

    Columns: those of `_BY`, `first_life` (the message was not replayed), `start` of the stretch
    (null outside of the period), `cause`; `records`, of them `failures`, `hops`, `replays`,
    `behind`, `unreadable`, `without_origin`; `first` and `last`, the times of these.
    """
    replayed, behind, records = F.col("replayed"), F.col("behind"), F.col("records")
    return (
        deliveries.groupBy(
            *_BY, (F.col("replays") == 0).alias("first_life"), stretch(period).alias("start")
        )
        .agg(
            F.sum(records).alias("records"),
            F.count_if(~replayed & ~behind).alias("failures"),
            F.sum(records - 1).alias("hops"),
            F.sum(F.when(replayed, records).otherwise(0)).alias("replays"),
            F.sum(F.when(behind, records).otherwise(0)).alias("behind"),
            F.sum("unreadable").alias("unreadable"),
            F.count_if(F.col("origin_offset").isNull()).alias("without_origin"),
            F.min("event_time").alias("first"),
            F.max("event_time").alias("last"),
        )
        .withColumn("cause", cause())
    )


def durations(deliveries: DataFrame) -> DataFrame:
    """How long failed calls took, by handler: percentiles 50, 95, 99 and 100 in milliseconds."""
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99, 1.0)))
    calls = deliveries.where("not replayed and not behind").groupBy(
        "group", "handler", "duration_ms"
    )
    return (
        calls.agg(F.count("*").alias("calls"))
        .groupBy("group", "handler")
        .agg(F.percentile("duration_ms", chosen, F.col("calls")).alias("duration_ms"))
    )


def samples(failures: DataFrame, at_ms: Collection[int]) -> DataFrame:
    """The failures of these moments, with their error messages; the first record first.

    Args:
        failures: the table.
        at_ms: when they failed; few moments.
    """
    days = ", ".join(f"DATE'{day}'" for day in sorted({moment(ms).date() for ms in at_ms}))
    moments = ", ".join(f"timestamp_millis({ms})" for ms in sorted(set(at_ms)))
    return (
        failures.where(f"day IN ({days}) AND event_time IN ({moments})")
        .where(~replayed() & ~did_not_fail())
        .select(
            "group", "handler", cause().alias("cause"),
            F.unix_millis("event_time").alias("at_ms"),
            "topic", "partition", "offset", "error_message",
        )
        .orderBy("kafka_time", "topic", "partition", "offset")
    )  # fmt: skip


def stretch(period: Period) -> Column:
    """The start of the stretch of time in which `event_time` lies; null outside of the period."""
    at = F.col("event_time")
    start = at - F.pmod(at + TO_MONDAY_MS, F.lit(period.stretch_ms))
    return F.when(at.between(period.first_ms, period.last_ms), start)


def outside(failures: DataFrame, period: Period, most: int) -> DataFrame:
    """Records whose failure lies outside of a period, at most so many; the furthest first.

    Args:
        failures: the table.
    """
    at, first, last = (
        F.col("event_time"),
        *(F.timestamp_millis(F.lit(ms)) for ms in (period.first_ms, period.last_ms)),
    )
    far = F.greatest(period.first_ms - F.unix_millis(at), F.unix_millis(at) - period.last_ms)
    return (
        failures.where((at < first) | (at > last))
        .select(
            "group", "handler", "topic", "partition", "offset",
            F.unix_millis("event_time").alias("at_ms"),
            F.unix_millis("kafka_time").alias("written_ms"),
            far.alias("far"),
        )
        .orderBy(F.desc("far"), "topic", "partition", "offset")
        .limit(most)
    )  # fmt: skip


def moment(ms: int) -> datetime:
    """Milliseconds since the epoch as a time; exact, and as far as Python's times go."""
    return _EPOCH + timedelta(milliseconds=ms)
