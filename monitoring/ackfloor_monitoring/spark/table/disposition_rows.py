"""Dispositions as rows: what was done with which dead letter, from the compacted topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DISPOSITION = StructType(
    [
        StructField("dlq", StringType()),
        # Of the dead-letter topic, as Kafka prints it.
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("disposition", StringType()),
        StructField("target", StringType()),
        StructField("at_ms", LongType()),
    ]
)

_NOTE = "disposition string, at timestamp, target string, topic_id string"


def dispositions_pattern(group: str | None) -> str:
    """The dispositions topics of a consumer group, or of all, as an anchored pattern."""
    return rf"^.+--{re.escape(group) if group else '.+'}--dispositions$"


def dispositions(records: DataFrame) -> DataFrame:
    """The rows of `DISPOSITION`, from records of dispositions topics.

    The last record of a key counts, and one without a value deletes it. What is no disposition is
    left out, as in a redrive.
    """
    place = F.split(F.col("key").cast("string"), "/")
    note = F.from_json(F.col("value").cast("string"), _NOTE)
    last = records.groupBy("topic", "key").agg(F.max_by("value", "offset").alias("value"))
    return (
        last.withColumn("note", note)
        .select(
            F.regexp_replace("topic", "--dispositions$", "--dlq").alias("dlq"),
            F.col("note.topic_id"),
            F.get(place, F.lit(0)).try_cast("int").alias("partition"),
            F.get(place, F.lit(1)).try_cast("bigint").alias("offset"),
            F.col("note.disposition"),
            F.col("note.target"),
            F.unix_millis("note.at").alias("at_ms"),
        )
        .where("disposition is not null and partition is not null and offset is not null")
    )
