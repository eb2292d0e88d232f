"""Rows of the table `failures` read straight from topics, as an ingest that missed nothing has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as F

from ackfloor.kafka.topics.topic_ids import printed
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import table_frames as frames
from ackfloor_monitoring.spark.table.columns import FAILURE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def failures_in(spark: SparkSession, servers: str, topics: list[str]) -> DataFrame:
    """The records of these retry and dead-letter topics; no payloads."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_topics(TopicCollection(topics))
    ids = {name: printed(future.result(60).topic_id) for name, future in described.items()}
    id_of = F.create_map(*(F.lit(part) for pair in ids.items() for part in pair))
    records = io.read_topics(spark, kafka_options(servers), topics=topics)
    rows = frames.failure_events(records).withColumns(
        {
            "topic_id": id_of[F.col("topic")],
            "group": F.coalesce("group", F.get(F.split("topic", "--"), F.lit(1))),
            "kafka_time": F.col("timestamp"),
            "ingested_at": F.current_timestamp(),
        }
    )
    missing = {f.name: F.lit(None).cast(f.dataType) for f in FAILURE if f.name not in rows.columns}
    return rows.withColumns(missing).select(*FAILURE.fieldNames())
