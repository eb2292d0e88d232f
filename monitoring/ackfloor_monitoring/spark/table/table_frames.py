"""Pure transforms, DataFrame in and DataFrame out: Kafka records to rows of the table, to counts.

A record is never dropped and never fails a job, whatever its headers hold: what is missing is
null, what is there and cannot be read is null and named in the column `unreadable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor.core.records import envelope
from ackfloor_monitoring.spark.table.columns import (
    EARLIEST_TIME_MS,
    FAILURE,
    FORGOTTEN,
    HEADER_COLUMNS,
    LATEST_TIME_MS,
    MESSAGE,
    HeaderColumn,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# As the runtime reads them; 18 digits always fit.
_COUNT = r"\A[0-9]{1,18}\z"
_WHOLE_NUMBER = r"\A-?[0-9]{1,18}\z"
# A group's name becomes a folder's: names that the runtime refuses must not.
_GROUP = r"\A[a-zA-Z0-9._]+(?:-[a-zA-Z0-9._]+)*\z"
_LONGEST_GROUP = 249
# How the names of other tools' headers begin, by the tool.
FOREIGN_HEADERS = {
    "spring": "kafka_dlt-",
    "connect": "__connect.errors.",
    "kafka-dlq": "__dlq.errors.",
}


def decode_headers(records: DataFrame) -> DataFrame:
    """Add a column for each of our headers, `unreadable` with the names of those that can't be
    read, and `own_headers` with what is not ours.

    Of a header that repeats the last one counts, as it does for the worker that reads it.
    """
    # Each is looked up in the reversed names. What is compiled is fast; `filter`, `transform` and
    # `array_compact` are not, nor is any expression inside of one: a million records took four
    # times as long with them.
    places = {_place(spec): F.array_position("_names", spec.header) for spec in HEADER_COLUMNS}
    return (
        records.withColumn("_names", F.reverse(F.col("headers")["key"]))
        .withColumn("_values", F.reverse(F.col("headers")["value"]))
        .withColumns(places)
        .withColumns({spec.column: _typed(spec) for spec in HEADER_COLUMNS})
        .withColumn("unreadable", _unreadable())
        .withColumn("own_headers", _own_headers())
        .drop("_names", "_values", *places)
    )


def failure_events(records: DataFrame) -> DataFrame:
    """Decoded records with `stage` (retry or dlq) and `event_time`, when the handler failed."""
    is_dlq = F.col("topic").endswith("--dlq")
    return records.transform(decode_headers).withColumns(
        {
            "stage": F.when(is_dlq, F.lit("dlq")).otherwise(F.lit("retry")),
            # Without our header the best guess is the record's own time: in a tier, the parking.
            "event_time": F.coalesce("failed_at", "timestamp"),
        }
    )


def failure_rows(
    records: DataFrame,
    topic_ids: Mapping[str, str],
    ingested_at: datetime,
    cluster: str | None = None,
) -> DataFrame:
    """Rows of the table `FAILURE`, one for each record, none left out, nothing redacted yet.

    Args:
        records: in the columns of `KAFKA_RECORD`.
        topic_ids: of every topic there; at least one.
        ingested_at: the time of this batch.
        cluster: the name of theirs; None where clusters have none.
    """
    parts = F.split("topic", "--")
    ids = F.create_map(*(F.lit(part) for pair in topic_ids.items() for part in pair))
    named = F.col("group").rlike(_GROUP) & (F.length("group") <= _LONGEST_GROUP)
    return (
        records.transform(failure_events)
        .withColumns(
            {
                "topic_id": ids[F.col("topic")],
                "group": F.when(named, F.col("group")).otherwise(F.get(parts, 1)),
                "day": F.to_date("event_time"),
                "tier": F.nullif(F.regexp_extract("topic", "--retry-([^-]+)$", 1), F.lit("")),
                "kafka_time": F.col("timestamp"),
                "ingested_at": F.lit(ingested_at),
                "payload": F.col("value"),
                "payload_bytes": F.octet_length("value").cast("bigint"),
                "foreign": _foreign(),
                "headers": F.col("own_headers"),
                "cluster": F.lit(cluster).cast("string"),
            }
        )
        .select(*FAILURE.fieldNames())
    )


def did_not_fail() -> Column:
    """Whether a row's record waits, or was given up, behind another one of its key."""
    reasons = [reason.value for reason in sorted(envelope.DID_NOT_FAIL)]
    return F.coalesce(F.col("reason").isin(reasons), F.lit(False))


def replayed() -> Column:
    """Whether a row's record is a replay, and no failure: a dead letter that was redriven."""
    replays, attempt = (F.coalesce(name, F.lit(0)) for name in ("replays", "attempt"))
    return (replays > 0) & (attempt == 0) & ~did_not_fail()


def remembered() -> Column:
    """Whether a row is more than the place of a record that was forgotten on request."""
    return F.col("stage") != FORGOTTEN


def with_derived(rows: DataFrame) -> DataFrame:
    """Add the columns of `DERIVED`, which follow from the others and are not stored."""
    kind = F.when(did_not_fail(), "behind").when(replayed(), "replay").otherwise("failure")
    error_class = F.substring_index("error_type", ".", -1)
    return rows.withColumns({"kind": kind, "error_class": error_class, "message": message()})


def message() -> Column:
    """The message that a row's record carries; null where its origin could not be read."""
    return F.when(F.col("origin_offset").isNotNull(), F.struct(*MESSAGE, "key"))


def _place(spec: HeaderColumn) -> str:
    """The column with the header's place among the reversed names; 0 where it is not there."""
    return f"_place_of_{spec.column}"


def _typed(spec: HeaderColumn) -> Column:
    text = F.get("_values", (F.col(_place(spec)) - 1).cast("int")).cast("string")
    if spec.kind == "text":
        # A cast keeps any bytes; text must be valid UTF-8.
        return F.try_validate_utf8(text)
    if spec.kind == "number":
        return F.when(text.rlike(_COUNT), text.try_cast("bigint"))
    time_ms = F.when(text.rlike(_WHOLE_NUMBER), text.try_cast("bigint"))
    return F.when(time_ms.between(EARLIEST_TIME_MS, LATEST_TIME_MS), F.timestamp_millis(time_ms))


def _unreadable() -> Column:
    return _those_of(
        F.when((F.col(_place(spec)) > 0) & F.col(spec.column).isNull(), F.lit(spec.header))
        for spec in HEADER_COLUMNS
    )


def _own_headers() -> Column:
    """Those that are not ours. The runtime writes ours behind them, so a slice is all of them."""
    ours = reduce(add, (F.when(F.col(_place(spec)) > 0, 1).otherwise(0) for spec in HEADER_COLUMNS))
    last = F.greatest(*(F.col(_place(spec)) for spec in HEADER_COLUMNS))
    count = F.size("headers")
    before = F.slice("headers", F.lit(1), count - ours)
    own = F.filter("headers", lambda header: ~header["key"].startswith(envelope.PREFIX))
    return (
        F.when(F.coalesce(count == ours, F.lit(True)), _none("headers"))
        .when((last == ours) & ~_begins(before["key"], envelope.PREFIX), before)
        .otherwise(F.coalesce(own, _none("headers")))
    )


def _foreign() -> Column:
    found = (
        F.when(_begins(F.col("own_headers")["key"], prefix), F.lit(tool))
        for tool, prefix in FOREIGN_HEADERS.items()
    )
    return F.when(F.size("own_headers") == 0, _none("foreign")).otherwise(_those_of(found))


def _begins(names: Column, prefix: str) -> Column:
    """Whether one of the names begins so; looked up in all of them joined."""
    joined = F.concat(F.lit("\n"), F.array_join(names, "\n"))
    return F.contains(joined, F.lit("\n" + prefix))


def _those_of(names: Iterable[Column]) -> Column:
    """An array of the names that are not null; they are names of ours, without a line's end."""
    joined = F.concat_ws("\n", *names)
    return F.when(joined == "", _none("foreign")).otherwise(F.split(joined, "\n"))


def _none(column: str) -> Column:
    """An empty array of a column's type."""
    return F.array().cast(FAILURE[column].dataType)
