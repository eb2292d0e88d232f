"""The rehearsal: what commands make Spark do, over two records, so that Java loads what they load.

Whatever it leaves out is read from jars as ever. There is no broker, so Kafka's client only tries.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ackfloor import KafkaUnreachable
from ackfloor_monitoring.spark import frames, io, store
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.schema import KAFKA_RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOWHERE = {"kafka.bootstrap.servers": "localhost:9"}
_TOPICS = {"orders--billing--retry-5s": "tier", "orders--billing--dlq": "letters"}
_HEADERS = {
    "origin.topic": "orders", "origin.partition": "0", "origin.offset": "7",
    "handler": "bill", "attempt": "1", "reason": "error", "failed_at": "1772366400000",
}  # fmt: skip


def rehearse(spark: SparkSession, folder: str) -> None:
    """One ingest and one report.

    Args:
        spark: the session.
        folder: an empty one, to be deleted.
    """
    now, table = datetime.now(UTC), f"{folder}/failures"
    _records(spark, now).write.parquet(f"{folder}/records")
    io.load_class(spark, "org.apache.spark.sql.kafka010.KafkaSourceProvider")
    with suppress(KafkaUnreachable):
        io.list_topics(spark, _NOWHERE, io.EVERY_GROUP, connect_timeout_s=0.5)
    store.open_table(spark, table)
    store.take_over(spark, table, "rehearsal")

    def append(records: DataFrame, _: int) -> None:
        store.require_writer(spark, table, "rehearsal")
        store.append(frames.failure_rows(records, _TOPICS, now), table)

    for _ in range(2):
        store.next_positions(spark, table, _TOPICS.values())
        store.merge_files(spark, table)
    stream = spark.readStream.schema(KAFKA_RECORD).parquet(f"{folder}/records")
    writer = stream.writeStream.foreachBatch(append).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    failure_history(spark, table, group=None, since=Since(), clients=None, made_at=now)


def _records(spark: SparkSession, now: datetime) -> DataFrame:
    headers = [(f"ackfloor.{name}", value.encode()) for name, value in _HEADERS.items()]
    rows = [(b"k", b"v", topic, 0, 0, now, 0, headers) for topic in _TOPICS]
    return spark.createDataFrame(rows, KAFKA_RECORD)
