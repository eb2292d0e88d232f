"""Columns: what the Kafka source gives, which of our headers becomes which column, the table.

Header names are the runtime's own constants, so a renamed header breaks this import and not a
report. Column names are the header names without prefix, dots turned into underscores.

The table `failures` has one row per failure: per record of a retry or dead-letter topic. A
record's key is (topic id, partition, offset); a topic that was deleted and created anew has a new
id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ackfloor.core.records import envelope

HeaderKind = Literal["text", "number", "time"]

_TYPES: dict[HeaderKind, DataType] = {
    "text": StringType(),
    "number": LongType(),
    "time": TimestampType(),
}


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """One header of ours: UTF-8 text; a number in decimal digits; a time in milliseconds."""

    header: str
    kind: HeaderKind

    @property
    def column(self) -> str:
        """The name of its column."""
        return self.header.removeprefix(envelope.PREFIX).replace(".", "_")

    @property
    def type(self) -> DataType:
        """The type of its column."""
        return _TYPES[self.kind]


HEADER_COLUMNS = (
    HeaderColumn(envelope.ORIGIN_TOPIC, "text"),
    HeaderColumn(envelope.ORIGIN_PARTITION, "number"),
    HeaderColumn(envelope.ORIGIN_OFFSET, "number"),
    HeaderColumn(envelope.ORIGIN_TIMESTAMP, "time"),
    HeaderColumn(envelope.GROUP, "text"),
    HeaderColumn(envelope.HANDLER, "text"),
    HeaderColumn(envelope.ATTEMPT, "number"),
    HeaderColumn(envelope.FAILURES, "number"),
    HeaderColumn(envelope.TIMEOUTS, "number"),
    HeaderColumn(envelope.REASON, "text"),
    HeaderColumn(envelope.ERROR_TYPE, "text"),
    HeaderColumn(envelope.ERROR_MESSAGE, "text"),
    HeaderColumn(envelope.ERROR_STACK, "text"),
    HeaderColumn(envelope.ERROR_FINGERPRINT, "text"),
    HeaderColumn(envelope.FIRST_FAILED_AT, "time"),
    HeaderColumn(envelope.FAILED_AT, "time"),
    HeaderColumn(envelope.NOT_BEFORE, "time"),
    HeaderColumn(envelope.RETRY_AT, "time"),
    HeaderColumn(envelope.DURATION_MS, "number"),
    HeaderColumn(envelope.RELEASE, "text"),
    HeaderColumn(envelope.WORKER, "text"),
    HeaderColumn(envelope.REPLAYS, "number"),
    HeaderColumn(envelope.EDITED, "text"),
    HeaderColumn(envelope.IDEMPOTENCY_KEY, "text"),
    HeaderColumn(envelope.TRUNCATED, "text"),
)

# The place of a source record, in its cluster.
ORIGIN = ("origin_topic", "origin_partition", "origin_offset")
# The key of a message: it is one of a group, wherever its retries lie. The record's own key belongs
# to it as well where messages are counted: of a topic that was deleted and created anew, the same
# place is another message. Redrive and park keep it.
MESSAGE = ("cluster", "group", *ORIGIN)

# Midnight UTC of 0001-01-02 and 9999-12-31: times beyond overflow in Spark or in Python.
EARLIEST_TIME_MS = -62_135_510_400_000
LATEST_TIME_MS = 253_402_214_400_000

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

# What Spark's Kafka source gives for a read with headers.
KAFKA_RECORD = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", _HEADERS),
    ]
)

# The same after `frames.decode_headers`.
DECODED_RECORD = StructType(
    [
        *KAFKA_RECORD.fields,
        *(StructField(spec.column, spec.type) for spec in HEADER_COLUMNS),
        StructField("unreadable", ArrayType(StringType())),
        StructField("own_headers", _HEADERS),
    ]
)

# Goes up when a stored column changes its name, its type or its meaning.
TABLE_VERSION = 1
TABLE_VERSION_PROPERTY = "ackfloor.table_version"
IDENTITY = ("topic_id", "partition", "offset")
# The stage of a row that is only a place: its record was forgotten, and ingest goes on behind it.
FORGOTTEN = "forgotten"
PLACE = (
    *IDENTITY, "topic", "group", "day", "stage", "event_time", "kafka_time", "ingested_at",
)  # fmt: skip
PARTITIONED_BY = ("day", "group")

# The table `failures`. Columns that are not described here hold the header of their name.
FAILURE = StructType(
    [
        # As Kafka prints it: 22 characters of URL-safe base64.
        StructField("topic_id", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        # From the header, or else from the topic's name.
        StructField("group", StringType()),
        # Of `event_time`, in UTC.
        StructField("day", DateType()),
        # "retry" or "dlq"; or `FORGOTTEN`.
        StructField("stage", StringType()),
        # The delay in the retry topic's name, such as "5s"; null in the dead-letter topic.
        StructField("tier", StringType()),
        # When the handler failed; without that header, when the record was written.
        StructField("event_time", TimestampType()),
        # The record's own timestamp.
        StructField("kafka_time", TimestampType()),
        StructField("ingested_at", TimestampType()),
        *(StructField(spec.column, spec.type) for spec in HEADER_COLUMNS if spec.column != "group"),
        StructField("key", BinaryType()),
        # Null where a redaction rule removes it.
        StructField("payload", BinaryType()),
        # The record's own, before redaction; null for a tombstone.
        StructField("payload_bytes", LongType()),
        # The user's own, redacted.
        StructField("headers", _HEADERS),
        # Headers of ours that could not be read.
        StructField("unreadable", ArrayType(StringType())),
        # Whose headers the record carries beside ours: "spring", "connect", "kafka-dlq".
        StructField("foreign", ArrayType(StringType())),
        # Where the table holds several: the name that its ingest was given (`clusters`).
        StructField("cluster", StringType()),
    ]
)

# What `store.read_failures` adds: it follows from the stored columns, also of a table that an older
# release has written.
DERIVED = StructType(
    [
        # "failure": a delivery failed. Further waits of one Retry(after=) are rows of the same
        # `event_time`. "replay": a dead letter was redriven. "behind": it waits, or was given up,
        # behind another record of its key.
        StructField("kind", StringType(), nullable=False),
        # `error_type` without its module, as `--error` takes it as well.
        StructField("error_class", StringType()),
        # Null where the origin can't be read.
        StructField(
            "message",
            StructType([*(FAILURE[name] for name in MESSAGE), FAILURE["key"]]),
        ),
    ]
)
