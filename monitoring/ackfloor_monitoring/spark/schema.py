"""Columns: what the Kafka source gives, and which of our headers becomes which column.

Header names are the runtime's own constants, so a renamed header breaks this import and not a
report. Column names are the header names without prefix, dots turned into underscores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ackfloor.core import envelope

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
    HeaderColumn(envelope.TRUNCATED, "text"),
)

# Midnight UTC of 0001-01-02 and 9999-12-31: what is beyond overflows in Spark or in Python.
EARLIEST_TIME_MS = -62_135_510_400_000
LATEST_TIME_MS = 253_402_214_400_000

# What Spark's Kafka source gives for a batch read with headers.
KAFKA_RECORD = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)

# The same after `frames.decode_headers`.
DECODED_RECORD = StructType(
    [
        *KAFKA_RECORD.fields,
        *(StructField(spec.column, spec.type) for spec in HEADER_COLUMNS),
        StructField("unreadable", ArrayType(StringType())),
    ]
)
