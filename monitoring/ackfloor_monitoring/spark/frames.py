"""Pure transforms, DataFrame in and DataFrame out: Kafka records to failures to counts.

A record is never dropped and never fails a job, whatever its headers hold: what is missing is
null, what is there and cannot be read is null and named in the column `unreadable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.schema import (
    EARLIEST_TIME_MS,
    HEADER_COLUMNS,
    LATEST_TIME_MS,
    HeaderColumn,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CAUSE = ("stage", "handler", "reason", "error_type")

# As the runtime reads them; 18 digits always fit.
_COUNT = r"\A[0-9]{1,18}\z"
_WHOLE_NUMBER = r"\A-?[0-9]{1,18}\z"


def decode_headers(records: DataFrame) -> DataFrame:
    """Add a column for each of our headers, and `unreadable` with the names of the unreadable.

    Of a header that repeats the last one counts, as it does for the worker that reads it.
    """
    # Each is looked up in the reversed names. A filter over the headers says it more plainly and
    # is an interpreted lambda: ten times slower over all columns.
    places = {_place(spec): F.array_position("_names", spec.header) for spec in HEADER_COLUMNS}
    return (
        records.withColumn("_names", F.reverse(F.col("headers")["key"]))
        .withColumn("_values", F.reverse(F.col("headers")["value"]))
        .withColumns(places)
        .withColumns({spec.column: _typed(spec) for spec in HEADER_COLUMNS})
        .withColumn("unreadable", _unreadable())
        .drop("_names", "_values", *places)
    )


def failure_events(records: DataFrame) -> DataFrame:
    """Decoded records with `stage` (retry or dlq) and `event_time`, when the handler failed."""
    is_dlq = F.col("topic").endswith("--dlq")
    return records.transform(decode_headers).withColumns(
        {
            "stage": F.when(is_dlq, F.lit("dlq")).otherwise(F.lit("retry")),
            # Without our header the best guess is the record's own time: in a tier that of parking.
            "event_time": F.coalesce("failed_at", "timestamp"),
        }
    )


def failures_by_cause(events: DataFrame, by: Sequence[str] = CAUSE) -> DataFrame:
    """How many records, since when, until when, and the highest attempt, for each cause.

    Args:
        events: from `failure_events`.
        by: the columns that tell one row from another.
    """
    return events.groupBy(*by).agg(
        F.count("*").alias("records"),
        F.min("event_time").alias("first_seen"),
        F.max("event_time").alias("last_seen"),
        F.max("attempt").alias("max_attempt"),
        F.count_if(F.size("unreadable") > 0).alias("unreadable_records"),
    )


def _place(spec: HeaderColumn) -> str:
    """The column with the header's place among the reversed names; 0 where it is not there."""
    return f"_place_of_{spec.column}"


def _typed(spec: HeaderColumn) -> Column:
    text = F.get("_values", (F.col(_place(spec)) - 1).cast("int")).cast("string")
    if spec.kind == "text":
        # A cast keeps whatever bytes there are; text is what is valid UTF-8.
        return F.try_validate_utf8(text)
    if spec.kind == "number":
        return F.when(text.rlike(_COUNT), text.try_cast("bigint"))
    time_ms = F.when(text.rlike(_WHOLE_NUMBER), text.try_cast("bigint"))
    return F.when(time_ms.between(EARLIEST_TIME_MS, LATEST_TIME_MS), F.timestamp_millis(time_ms))


def _unreadable() -> Column:
    names = [
        F.when((F.col(_place(spec)) > 0) & F.col(spec.column).isNull(), F.lit(spec.header))
        for spec in HEADER_COLUMNS
    ]
    return F.array_compact(F.array(*names))
