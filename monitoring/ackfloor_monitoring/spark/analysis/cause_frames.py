"""Causes as rows: what failed, how often, since when, in which releases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import FINGERPRINT
from ackfloor_monitoring.spark.report.deliveries import cause, deliveries, failure_columns
from ackfloor_monitoring.spark.report.time_axis import DAY_MS, EARLIEST_DAY, Period, day_after
from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BY = ("group", "handler", "cause")


def possible_period() -> Period:
    """From 2011, when Kafka came, to tomorrow: a time beyond is that of a wrong clock."""
    return Period(EARLIEST_DAY * DAY_MS, day_after(datetime.now(UTC)) * DAY_MS - 1)


def possible(at_ms: Column) -> Column:
    """A time in milliseconds; null where a clock was wrong."""
    period = possible_period()
    return F.when(at_ms.between(period.first_ms, period.last_ms), at_ms)


def fingerprints(failures: DataFrame) -> DataFrame:
    """Rows of `FINGERPRINT`, one for each group, handler and cause.

    Args:
        failures: rows of the table.
    """
    failed = deliveries(failure_columns(failures)).where("not replayed and not behind")
    at = possible(F.col("event_time"))
    origin = F.when(F.col("origin_offset").isNotNull(), F.struct(*MESSAGE, "key"))
    counted = failed.groupBy("group", "handler", cause().alias("cause")).agg(
        F.max("error_fingerprint").alias("fingerprint"),
        F.max("error_type").alias("error_type"),
        F.count("*").alias("failures"),
        F.count_distinct(origin).alias("messages"),
        F.count_if(F.col("stage") == "dlq").alias("dead"),
        F.timestamp_millis(F.min(at)).alias("first"),
        F.timestamp_millis(F.max(at)).alias("last"),
        F.sort_array(F.collect_set("release")).alias("releases"),
    )
    return described(_joined(counted, _samples(failures)), FINGERPRINT)


def _samples(failures: DataFrame) -> DataFrame:
    """The latest failure of each cause."""
    at = possible(F.unix_millis("event_time"))
    record = F.struct("topic", "partition", "offset", "error_message")
    latest = F.max(F.struct(at.alias("at"), "kafka_time", record.alias("record")))
    return (
        failures.where(~replayed() & ~did_not_fail())
        .groupBy("group", "handler", cause().alias("cause"))
        .agg(latest["record"].alias("sample"))
    )


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """By `_BY`; a group or a handler may be null in both."""
    right = right.withColumnsRenamed({name: f"_{name}" for name in _BY})
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _BY]
    return left.join(F.broadcast(right), same, "left")
