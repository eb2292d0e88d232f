"""Scene: a consumer group's retry and dead-letter topics on a real broker, and its table."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ackfloor import AckfloorError
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.columns import (
    PARTITIONED_BY,
    TABLE_VERSION,
    TABLE_VERSION_PROPERTY,
)
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from ackfloor_monitoring.spark.table.ingest_observer import IngestObserver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON_MS = 1_772_366_400_000


class Noted(IngestObserver):
    """What ended the streams of an ingest."""

    def __init__(self) -> None:
        self.failures: list[AckfloorError] = []

    def failed(self, error: AckfloorError) -> None:
        """One more."""
        self.failures.append(error)


@dataclass
class Scene:
    """A group with topics on a broker, and a table for its failures."""

    bootstrap_servers: str
    table: str
    group: str = field(default_factory=lambda: f"ingest.{uuid.uuid4().hex[:8]}")
    told: list[str] = field(default_factory=list)
    noted: Noted = field(default_factory=Noted)
    run: Future[object] | None = None
    partitions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        self.producer = Producer({"bootstrap.servers": self.bootstrap_servers})

    def topic(self, ending: str) -> str:
        """A topic of the group."""
        return f"orders--{self.group}--{ending}"

    def create(self, *endings: str, partitions: int = 2, **config: str) -> None:
        """Topics of the group; the broker tells of them when this returns."""
        self.partitions |= dict.fromkeys(endings, partitions)
        new = [NewTopic(self.topic(each), partitions, 1, config=config) for each in endings]
        for made in self.admin.create_topics(new, operation_timeout=60).values():
            made.result(60)
        wanted = {self.topic(each) for each in endings}
        self.until(lambda: wanted <= self.admin.list_topics(timeout=60).topics.keys())

    def delete(self, ending: str) -> None:
        """Delete one of them; the broker tells of it no more when this returns."""
        topic = self.topic(ending)
        self.admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
        self.until(lambda: topic not in self.admin.list_topics(timeout=60).topics)
        # One that knew it would take its successor for what it was.
        self.producer = Producer({"bootstrap.servers": self.bootstrap_servers})

    def earlier(self, spark: SparkSession, *lacking: str) -> str:
        """The path of the same table as an earlier release had made it: without these columns."""
        path = f"{self.table}-of-an-earlier-release"
        rows = spark.read.format("delta").load(self.table).drop(*lacking)
        rows.write.format("delta").partitionBy(*PARTITIONED_BY).save(path)
        version = f"'{TABLE_VERSION_PROPERTY}' = '{TABLE_VERSION}'"
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({version})")
        return path

    def produce(self, ending: str, count: int, *, apart_ms: int = 3_600_000) -> None:
        """Records as a worker parks them, one failure every hour unless told."""
        for number in range(count):
            self.producer.produce(
                self.topic(ending), b"v%d" % number, b"k%d" % (number % 7),
                number % self.partitions[ending],
                headers=[
                    ("own", b"1"),
                    ("ackfloor.handler", b"bill"),
                    ("ackfloor.attempt", b"1"),
                    ("ackfloor.failed_at", str(NOON_MS + number * apart_ms).encode()),
                ],
            )  # fmt: skip
            self.producer.poll(0)
        assert self.producer.flush(60) == 0

    def plan(self, **changes: object) -> IngestPlan:
        """A single run over this group."""
        given: dict[str, object] = {
            "table": self.table,
            "kafka": kafka_options(self.bootstrap_servers),
            "pattern": io.group_pattern(self.group),
            "once": True,
        }
        return IngestPlan(**(given | changes))  # type: ignore[arg-type]

    def ingest(self, spark: SparkSession, **changes: object) -> Ingest:
        """Run it once."""
        work = Ingest(spark, self.plan(**changes), self.told.append)
        work.run()
        return work

    @contextmanager
    def running(self, spark: SparkSession, **changes: object) -> Iterator[Ingest]:
        """A stream on a thread; what it raises is raised here."""
        plan = self.plan(once=False, every_s=0.2, **changes)
        work = Ingest(spark, plan, self.told.append, self.noted)
        with ThreadPoolExecutor(1) as threads:
            self.run = threads.submit(work.run)
            try:
                yield work
            finally:
                work.stop()
            self.run.result(60)

    @property
    def ended(self) -> bool:
        """Whether that stream has."""
        return self.run is not None and self.run.done()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it; a stream that has failed is not waited for."""
        end = time.monotonic() + 240
        while not reached():
            assert time.monotonic() < end, self.told
            if self.run is not None and self.run.done():
                self.run.result()
            time.sleep(0.05)

    def counts(self, spark: SparkSession) -> Counter[str]:
        """Rows by the ending of the topic; no identity is there twice."""
        table = store.read_failures(spark, self.table)
        rows = table.select("topic_id", "partition", "offset", "topic").collect()
        assert len(rows) == len({row[:3] for row in rows})
        return Counter(row["topic"].split("--")[2] for row in rows)
