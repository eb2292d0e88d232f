"""Dispositions as rows: what was done with which dead letter, from the compacted topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ackfloor_monitoring.spark.table.kafka_reads import list_topics, read_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The first four are the columns of the same names of the table of failures.
DISPOSITION = StructType(
    [
        # The dead-letter topic, and its id as Kafka prints it.
        StructField("topic", StringType()),
        StructField("topic_id", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        # "replayed", "discarded" or "archived".
        StructField("disposition", StringType()),
        # The topic it was replayed to, or where it was archived.
        StructField("target", StringType()),
        # Of the wall clock.
        StructField("at_ms", LongType()),
        # Who asked for it, and the job that did it.
        StructField("by", StringType()),
        StructField("job", StringType()),
    ]
)

_NOTE = "disposition string, at timestamp, target string, topic_id string, by string, job string"


def dispositions_pattern(group: str | None) -> str:
    """The dispositions topics of a consumer group, or of all, as an anchored pattern."""
    return rf"^.+--{re.escape(group) if group else '.+'}--dispositions$"


def read_dispositions(
    spark: SparkSession, kafka: Mapping[str, str], group: str | None = None
) -> DataFrame:
    """What was done with which dead letter: rows of `DISPOSITION`, to join to the failures by
    `topic`, `topic_id`, `partition` and `offset`.

    Args:
        kafka: from `kafka_options.kafka_options` or `connection_options`.
        group: of this consumer group only; None for all.

    Raises:
        KafkaUnreachable, KafkaRefused: as they say.
    """
    topics = list_topics(spark, kafka, dispositions_pattern(group))
    if not topics:
        return spark.createDataFrame([], DISPOSITION)
    return dispositions(read_topics(spark, kafka, topics=topics))


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
            F.regexp_replace("topic", "--dispositions$", "--dlq").alias("topic"),
            F.col("note.topic_id"),
            F.get(place, F.lit(0)).try_cast("int").alias("partition"),
            F.get(place, F.lit(1)).try_cast("bigint").alias("offset"),
            F.col("note.disposition"),
            F.col("note.target"),
            F.unix_millis("note.at").alias("at_ms"),
            F.col("note.by"),
            F.col("note.job"),
        )
        .where("disposition is not null and partition is not null and offset is not null")
    )
