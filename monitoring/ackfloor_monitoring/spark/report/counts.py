"""Failures counted once, by all columns of the report's tables.

`counts` has some thousand rows, however many deliveries there are; `sums` adds them up. Only
numbers are aggregated, never text: for text Spark would sort all rows; numbers it can hash.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.deliveries import cause
from ackfloor_monitoring.spark.report.time_axis import PART_OF_DAY_MS, TO_MONDAY_MS, Period
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BY = (
    "group", "origin_topic", "handler", "reason", "error_type", "error_fingerprint", "release",
    "stage", "attempt", "tier",
)  # fmt: skip
_SUMMED = (
    "records", "failures", "hops", "replays", "behind", "unreadable", "without_origin",
)  # fmt: skip
# Which of the failures of one moment comes first.
FIRST = ("kafka_time", "topic", "partition", "offset")
_SAMPLED = ("group", "handler", "cause", "at_ms", *FIRST, "error_message")


def counts(deliveries: DataFrame, start: Column, *day: str) -> DataFrame:
    """Records and failures by stretch of time, handler, cause and the columns of `_BY`.

    Columns: those of `_BY`, `first_life` (the message was not replayed), `start` of the stretch,
    `cause`; `_SUMMED`; `first` and `last`, the times of these.

    Args:
        start: from `stretch` or `part_of_day`.
        day: the column of the day, where each is to be counted.
    """
    replayed, behind, records = F.col("replayed"), F.col("behind"), F.col("records")
    return (
        deliveries.groupBy(
            *day, *_BY, (F.col("replays") == 0).alias("first_life"), start.alias("start")
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


def summed(counts: pa.Table, period: Period) -> pa.Table:
    """The counts of parts of days by the longer stretches of a period.

    Args:
        counts: from `counts`, by `part_of_day`.
        period: whole days, and its stretches are parts of a day or more of them.
    """
    first, at = counts["first"], counts["start"].to_numpy()
    start = pa.array(at - (at + TO_MONDAY_MS) % period.stretch_ms)
    # Each part of a day lies in the period as a whole, or outside of it.
    drawn = pc.and_(pc.greater_equal(first, period.first_ms), pc.less_equal(first, period.last_ms))
    start = pc.if_else(drawn, start, pa.scalar(None, pa.int64()))
    counts = counts.drop_columns(["start"]).append_column("start", start)
    by = [*_BY, "first_life", "start", "cause"]
    how = {**dict.fromkeys(_SUMMED, "sum"), "first": "min", "last": "max"}
    found = counts.group_by(by).aggregate(list(how.items()))
    return found.rename_columns([*by, *how])


def calls(deliveries: DataFrame, *day: str) -> DataFrame:
    """How many failed calls took how many milliseconds, by handler, and by the column of the day
    where that is given."""
    failed = deliveries.where("not replayed and not behind")
    return failed.groupBy(*day, "group", "handler", "duration_ms").agg(F.count("*").alias("calls"))


def durations(calls: DataFrame) -> DataFrame:
    """How long failed calls took, by handler: percentiles 50, 95, 99 and 100 in milliseconds.

    Args:
        calls: from the function of this name.
    """
    chosen = F.array(*(F.lit(share) for share in (0.5, 0.95, 0.99, 1.0)))
    return calls.groupBy("group", "handler").agg(
        F.percentile("duration_ms", chosen, F.col("calls")).alias("duration_ms")
    )


def samples(failures: DataFrame, at_ms: Collection[int]) -> DataFrame:
    """The failures of these moments, with their error messages; the first record first.

    Args:
        failures: the table.
        at_ms: when they failed; few moments.
    """
    days = ", ".join(f"DATE'{day}'" for day in sorted({moment(ms).date() for ms in at_ms}))
    moments = ", ".join(f"timestamp_millis({ms})" for ms in sorted(set(at_ms)))
    rows = failures.where(f"day IN ({days}) AND event_time IN ({moments})")
    return _failed(rows).select(*_SAMPLED).orderBy(*FIRST)


def latest(failures: DataFrame, counts: DataFrame, day: str) -> DataFrame:
    """Of each day and cause the latest failure, as `samples` has them; of several the first.

    Args:
        failures: the table, with the column of the day.
        counts: from `counts`, with that column too.
        day: its name.
    """
    by = (day, "group", "handler", "cause")
    last = counts.where("failures > 0").groupBy(*by).agg(F.max("last").alias("at_ms"))
    last = last.select(*(F.col(name).alias(f"_{name}") for name in (*by, "at_ms")))
    found = _failed(failures).select(day, *_SAMPLED)
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in (*by, "at_ms")]
    columns = F.struct(*(name for name in found.columns if name not in by))
    return (
        found.join(F.broadcast(last), same)
        .groupBy(*by)
        .agg(F.min_by(columns, F.struct(*FIRST)).alias("_first"))
        .select(*by, "_first.*")
    )


def _failed(rows: DataFrame) -> DataFrame:
    """The failures, with their cause and their time in milliseconds."""
    return rows.where(~replayed() & ~did_not_fail()).withColumns(
        {"cause": cause(), "at_ms": F.unix_millis("event_time")}
    )


def stretch(period: Period) -> Column:
    """The start of the stretch of time in which `event_time` lies; null outside of the period."""
    at = F.col("event_time")
    return F.when(at.between(period.first_ms, period.last_ms), _start(at, period.stretch_ms))


def part_of_day() -> Column:
    """The start of the part of its day in which `event_time` lies."""
    return _start(F.col("event_time"), PART_OF_DAY_MS)


def _start(at: Column, length_ms: int) -> Column:
    return at - F.pmod(at + TO_MONDAY_MS, F.lit(length_ms))


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
