"""Ingest: every record of the retry and dead-letter topics becomes a row of the table, once.

A stream starts where the table ends (`store`), so each start is the same: after a kill in the
middle of a batch, without the checkpoint, or in another folder of another machine. These end the
stream, are logged, and it starts anew:

- a topic vanished, or was created anew (its id is checked before every batch);
- retention was faster than ingest: the records are gone from Kafka, how many is logged;
- the table's columns or properties were changed while a batch was stored;
- the brokers are away: a stream waits for them, a single run fails.

Anything else ends ingest with an error, as does a stream that starts five times without storing
anything. Records are never skipped.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from ackfloor import AckfloorError, KafkaUnreachable
from ackfloor.core.records.redaction import Redaction
from ackfloor_monitoring.spark.spark_errors import NoTopics, ReadFailed, StoreFailed, StreamBroken
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store, upkeep
from ackfloor_monitoring.spark.table import table_frames as frames
from ackfloor_monitoring.spark.table.clusters import require_cluster
from ackfloor_monitoring.spark.table.ingest_observer import IngestObserver
from ackfloor_monitoring.spark.table.redacted_rows import redacted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY_S = 1
_ASK_AGAIN_AFTER_S = 5.0
_MOST_FRUITLESS = 5
# Spark's errors where it can't go on: something is gone or has changed.
_BROKEN = (
    "failOnDataLoss",
    "KAFKA_DATA_LOSS",
    "you must specify all TopicPartitions",
    "UnknownTopicOrPartition",
    "UnknownTopicId",
)
_UNREACHABLE = ("TimeoutException", "DisconnectException", "BrokerNotAvailableException")
# What only Kafka's client says, and what Spark says where that returned no record in time.
_OF_KAFKA = ("org.apache.kafka.", "Cannot fetch record for offset")


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What is read, where it goes, and how.

    Attributes:
        table: the path of the table.
        kafka: from `options.connection_options`.
        pattern: of the topics, from `io.group_pattern`, anchored.
        rules: what is redacted before anything is stored.
        once: end when all records that exist now are stored.
        every_s: the time from one batch to the next, in seconds.
        keep_s: how long failures are kept, in seconds; None for ever. Whole days go.
        at_most: most records of one batch.
        cluster: what its rows name their cluster; None in a table that holds one.
    """

    table: str
    kafka: Mapping[str, str]
    pattern: str
    rules: Redaction = field(default_factory=Redaction)
    once: bool = False
    every_s: float = 10.0
    keep_s: float | None = None
    at_most: int = 500_000
    cluster: str | None = None

    def oldest_day(self, now: datetime) -> date | None:
        """The first day that is kept."""
        return None if self.keep_s is None else (now - timedelta(seconds=self.keep_s)).date()


@dataclass(slots=True)
class Stored:
    """What one ingest has done: records and batches, and offsets that Kafka no longer had."""

    records: int = 0
    batches: int = 0
    begins: int = 0
    gone: int = 0


class Ingest:
    """One ingest, from its start to its end."""

    def __init__(
        self,
        spark: SparkSession,
        plan: IngestPlan,
        tell: Callable[[str], None] = print,
        observer: IngestObserver | None = None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._tell = tell
        self._observer = observer or IngestObserver()
        self._ids: dict[str, str] = {}
        self._writer = ""
        self._problem: AckfloorError | None = None
        self._stopping = False
        self._kept_house: date | None = None
        self._unmerged = 0
        self.stored = Stored()
        # The name of each of its queries in Spark, so that a listener knows them.
        self.query_name = f"ackfloor-ingest-{uuid.uuid4().hex}"

    def stop(self) -> None:
        """End `run` soon; a batch that is under way is not stored."""
        self._stopping = True

    def run(self) -> Stored:
        """Store until `stop`, or with `once` until all is stored that was there at the start.

        Raises:
            KafkaUnreachable, KafkaRefused, NoTopics, TableRefused, StoreFailed, AnotherIngest,
            ReadFailed, ClusterRefused: each says what to do.
        """
        if store.open_table(self._spark, self._plan.table):
            self._kept_house = datetime.now(UTC).date()  # an empty table needs no clean-up
        require_cluster(self._spark, self._plan.table, self._plan.cluster)
        fruitless = 0
        while not self._stopping:
            before = self.stored.batches
            self._keep_house()
            try:
                self._follow(self._begin())
                if self._plan.once:
                    break
            except StreamBroken as broken:
                fruitless = 1 if self.stored.batches > before else fruitless + 1
                if fruitless >= _MOST_FRUITLESS:
                    raise ReadFailed(
                        f"started {fruitless} times without a batch, the last: {broken}"
                    ) from broken
                self._tell(f"begins anew: {broken}")
            except KafkaUnreachable as away:
                if self._plan.once or not self.stored.begins:
                    raise
                self._tell(f"waits for the brokers: {away}")
                self._await_brokers()
        return self.stored

    def _begin(self) -> DataFrame:
        """Take the table over and read on from where it ends."""
        plan = self._plan
        topics = io.describe_topics(self._spark, plan.kafka, plan.pattern)
        if not topics and plan.once:
            raise NoTopics(
                f"no topic matches {plan.pattern} on {plan.kafka['kafka.bootstrap.servers']}; "
                "check the group, and that a worker of it was started once"
            )
        self._writer = uuid.uuid4().hex
        store.take_over(self._spark, plan.table, self._writer)
        self._ids = {topic.name: topic.id for topic in topics}
        stored = store.next_positions(self._spark, plan.table, self._ids.values())
        start = {topic.name: self._start(topic, stored) for topic in topics}
        self.stored.begins += 1
        return io.stream_topics(self._spark, plan.kafka, plan.pattern, start, at_most=plan.at_most)

    def _start(self, topic: io.Topic, stored: Mapping[tuple[str, int], int]) -> dict[int, int]:
        start = {}
        for partition, (first, end) in topic.spans.items():
            position = stored.get((topic.id, partition), first)
            if position < first:
                self.stored.gone += first - position
                self._tell(
                    f"{topic.name}/{partition}: {first - position} offsets from {position} on are "
                    "gone from Kafka and were not stored; retention was faster than ingest"
                )
            elif position > end:
                self._tell(
                    f"{topic.name}/{partition}: the log ends at {end}, before {position} that is "
                    "stored; it was cut back, goes on at its end"
                )
            start[partition] = min(max(position, first), end)
        return start

    def _follow(self, records: DataFrame) -> None:
        """Store batches until the stream ends."""
        self._problem = None
        plan = self._plan
        checkpoint = store.scratch_folder(plan.table, self._writer)
        writer = records.writeStream.foreachBatch(self._store).queryName(self.query_name)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if plan.once
            else writer.trigger(processingTime=f"{int(plan.every_s * 1000)} milliseconds")
        )
        reported: set[int] = set()
        query = writer.start()
        try:
            while not query.awaitTermination(_LOOK_EVERY_S):
                self._progress(query, reported)
                self._observer.turn()
                if self._stopping:
                    query.stop()
                elif self._kept_house != datetime.now(UTC).date() and not plan.once:
                    query.stop()  # a new day: clean up before the next start
            self._progress(query, reported)
        except StreamingQueryException as error:
            self._progress(query, reported)
            verdict = self._verdict(error)
            self._observer.failed(verdict)
            raise verdict from error
        finally:
            query.stop()

    def _store(self, records: DataFrame, _: int) -> None:
        """One batch: a commit of its own, or nothing. Called on a thread of Spark's."""
        plan, now = self._plan, datetime.now(UTC)
        try:
            self._look_at_topics()
            store.require_writer(self._spark, plan.table, self._writer)
            # Each task writes a file in each folder: one task a core, not one a Kafka partition.
            records = records.coalesce(self._spark.sparkContext.defaultParallelism)
            rows = records.transform(frames.failure_rows, self._ids, now, plan.cluster)
            if (oldest := plan.oldest_day(now)) is not None:
                rows = rows.where(rows["day"] >= oldest)
            self._append(redacted(rows, plan.rules))
            self._observer.stored(now)
            self._merge_files()
        except AckfloorError as error:
            self._problem = error  # Java would pass on its text alone
            raise

    def _append(self, rows: DataFrame) -> None:
        """The records are read from Kafka only here, so what ends the reading ends this. Where
        somebody changed the table meanwhile, such as added a column, nothing was stored."""
        try:
            with store.readable_store_errors(self._plan.table):
                store.append(rows, self._plan.table)
        except StoreFailed as failed:
            store.require_writer(self._spark, self._plan.table, self._writer)
            if store.is_conflict(failed):
                raise StreamBroken(f"the table was changed meanwhile: {failed}") from failed
            origin = getattr(failed.__cause__, "java_exception", None)
            causes = io.java_causes(origin)
            gone = self._of_reading(causes)
            # The storage has timeouts as well: only what Kafka alone says is believed.
            if isinstance(gone, StreamBroken) or (gone and _is_of_kafka(causes)):
                raise gone from failed
            raise

    def _merge_files(self) -> None:
        """Merge files where recent batches may have left many in a folder."""
        self._unmerged += self._spark.sparkContext.defaultParallelism
        if self._unmerged >= upkeep.MANY_FILES:
            self._unmerged = 0
            try:
                upkeep.merge_files(self._spark, self._plan.table)
            except StoreFailed as error:  # such as by an erasure that rewrites the same files
                self._tell(f"files were not merged: {error}")

    def _look_at_topics(self) -> None:
        """Learn the ids of new topics; raise StreamBroken where one has another id now."""
        found = io.topic_ids(self._spark, self._plan.kafka, self._plan.pattern)
        for name, now in found.items():
            if self._ids.get(name, now) != now:
                raise StreamBroken(f"topic {name} was deleted and created anew")
        self._ids |= found

    def _progress(self, query: StreamingQuery, reported: set[int]) -> None:
        for progress in query.recentProgress:
            records = progress.numInputRows
            if not records or progress.batchId in reported:
                continue
            reported.add(progress.batchId)
            self.stored.records += records
            self.stored.batches += 1
            seconds = progress.batchDuration / 1000
            behind = progress.sources[0].metrics.get("maxOffsetsBehindLatest", "0")
            self._tell(f"stored {records:,} records in {seconds:.1f} s; {int(behind):,} behind")

    def _verdict(self, error: StreamingQueryException) -> AckfloorError:
        """The cause of a stream's failure."""
        if self._problem is not None:
            return self._problem
        try:
            store.require_writer(self._spark, self._plan.table, self._writer)
        except AckfloorError as displaced:  # the new writer has deleted the checkpoint as well
            return displaced
        causes = io.java_causes(getattr(error, "_origin", None))
        kind, text = causes[-1]
        first = text.partition("\n")[0]
        return self._of_reading(causes) or ReadFailed(f"the stream failed: {kind}: {first}")

    def _of_reading(self, causes: Sequence[tuple[str, str]]) -> AckfloorError | None:
        """What is wrong with Kafka, of a Java exception's causes; None where something else is."""
        if not causes:
            return None
        kind, text = causes[-1]
        first = text.partition("\n")[0]
        text = " ".join(f"{name}: {message}" for name, message in causes)
        if any(mark in text for mark in _BROKEN):
            return StreamBroken(f"{kind}: {first}")
        if any(name.endswith(_UNREACHABLE) for name, _ in causes):
            servers = self._plan.kafka["kafka.bootstrap.servers"]
            return KafkaUnreachable(f"bootstrap_servers={servers!r}: {kind}: {first}")
        return None

    def _await_brokers(self) -> None:
        while not self._stopping:
            try:
                io.topic_ids(self._spark, self._plan.kafka, self._plan.pattern)
            except KafkaUnreachable:
                time.sleep(_ASK_AGAIN_AFTER_S)
            else:
                return

    def _keep_house(self) -> None:
        """At the start and once a day: drop old days, merge small files, delete dead ones."""
        now = datetime.now(UTC)
        if self._kept_house == now.date():
            return
        self._kept_house = now.date()
        try:
            if (oldest := self._plan.oldest_day(now)) is not None:
                store.drop_older(self._spark, self._plan.table, oldest)
            upkeep.merge_files(self._spark, self._plan.table, now.date())
            store.clean(self._spark, self._plan.table, now.date())
        except StoreFailed as error:
            self._tell(f"old days were not deleted or files not merged: {error}")


def _is_of_kafka(causes: Sequence[tuple[str, str]]) -> bool:
    """Whether a Java exception's causes are those of reading Kafka, and not of the storage."""
    return any(mark in f"{name}: {text}" for name, text in causes for mark in _OF_KAFKA)
