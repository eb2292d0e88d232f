"""Causes as rows: what failed, how often, since when, in which releases, and what it cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.analysis.described import described
from ackfloor_monitoring.spark.analysis.view_columns import COST, DELIVERY, FINGERPRINT
from ackfloor_monitoring.spark.report.deliveries import cause, deliveries, failure_columns
from ackfloor_monitoring.spark.report.time_axis import DAY_MS, EARLIEST_DAY, Period, day_after
from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.table_frames import did_not_fail, replayed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What tells causes apart.
BY: Final = ("group", "handler", "cause")


def possible_period() -> Period:
    """From 2011, when Kafka came, to tomorrow: a time beyond is that of a wrong clock."""
    return Period(EARLIEST_DAY * DAY_MS, day_after(datetime.now(UTC)) * DAY_MS - 1)


def possible(at_ms: Column) -> Column:
    """A time in milliseconds; null where a clock was wrong."""
    period = possible_period()
    return F.when(at_ms.between(period.first_ms, period.last_ms), at_ms)


def failed_deliveries(failures: DataFrame) -> DataFrame:
    """A row for each delivery that failed: the columns of `deliveries`, and `cause`, `at` (when,
    in milliseconds; null where a clock was wrong) and `message` (null where its origin is not
    known).

    Args:
        failures: rows of the table.
    """
    failed = deliveries(failure_columns(failures)).where("not replayed and not behind")
    origin = F.when(F.col("origin_offset").isNotNull(), F.struct(*MESSAGE, "key"))
    found = {"cause": cause(), "at": possible(F.col("event_time")), "message": origin}
    return failed.withColumns(found)


def delivery_rows(failures: DataFrame) -> DataFrame:
    """Rows of `DELIVERY`, one for each delivery that failed.

    Args:
        failures: rows of the table.
    """
    at = F.timestamp_millis("event_time")
    return described(
        failed_deliveries(failures).withColumns({"event_time": at, "day": F.to_date(at)}), DELIVERY
    )


def fingerprints(failures: DataFrame) -> DataFrame:
    """Rows of `FINGERPRINT`, one for each group, handler and cause.

    Args:
        failures: rows of the table.
    """
    counted = (
        failed_deliveries(failures)
        .groupBy(*BY)
        .agg(
            F.max("error_fingerprint").alias("fingerprint"),
            F.max("error_type").alias("error_type"),
            F.count("*").alias("failures"),
            F.count_distinct("message").alias("messages"),
            F.count_if(F.col("stage") == "dlq").alias("dead"),
            F.timestamp_millis(F.min("at")).alias("first"),
            F.timestamp_millis(F.max("at")).alias("last"),
            F.sort_array(F.collect_set("release")).alias("releases"),
        )
    )
    return described(joined(counted, samples(failures)), FINGERPRINT)


def costs(failures: DataFrame) -> DataFrame:
    """Rows of `COST`, one for each group, handler and cause.

    Args:
        failures: rows of the table.
    """
    due = possible(F.col("not_before"))
    delay = F.when((F.col("stage") == "retry") & (due >= F.col("at")), due - F.col("at"))
    counted = (
        failed_deliveries(failures)
        .groupBy(*BY)
        .agg(
            F.max("error_type").alias("error_type"),
            F.count("*").alias("failures"),
            (F.coalesce(F.sum("duration_ms"), F.lit(0)) / 1000).alias("handler_s"),
            F.count_if(F.col("duration_ms").isNull()).alias("untimed"),
            (F.coalesce(F.sum(delay), F.lit(0)) / 1000).alias("delay_s"),
        )
    )
    return described(counted, COST)


def samples(failures: DataFrame) -> DataFrame:
    """The latest failure of each cause: the columns of `BY`, and `sample`."""
    at = possible(F.unix_millis("event_time"))
    record = F.struct("topic", "partition", "offset", "error_message")
    latest = F.max(F.struct(at.alias("at"), "kafka_time", record.alias("record")))
    return (
        failures.where(~replayed() & ~did_not_fail())
        .groupBy("group", "handler", cause().alias("cause"))
        .agg(latest["record"].alias("sample"))
    )


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """By `BY`; a group or a handler may be null in both."""
    right = right.withColumnsRenamed({name: f"_{name}" for name in BY})
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in BY]
    return left.join(F.broadcast(right), same, "left")
