"""The Kafka client keeps the contracts of Source and Sink, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ackfloor.core.records.record import Record
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume import membership
from ackfloor.kafka.consume.broadcast_source import KafkaBroadcastSource
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.produce.sink import KafkaSink
from ackfloor.kafka.produce.transactional_sink import KafkaTransactionalSink
from ackfloor.ports import Sink, Source
from tests.contracts.broadcast_contract import BroadcastContract, BroadcastWorld
from tests.contracts.parked_contract import ParkedContract, ParkedWorld, Waiting
from tests.contracts.sink_contract import SinkContract
from tests.contracts.source_contract import SourceContract
from tests.contracts.transaction_contract import TransactionContract, TransactionWorld
from tests.framework.kafka.wire import read_by_another

pytestmark = pytest.mark.kafka

REQUEST_S = 60.0
#: Seconds that the markers of a transaction may take once its end was confirmed.
MARKERS_S = 5.0


def fresh(name: str) -> str:
    """A name nobody has used."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


class KafkaWorld(BroadcastWorld, ParkedWorld, TransactionWorld):
    """Topics and groups of one test's own on the run's broker."""

    def __init__(self, servers: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": servers}
        self._admin = AdminClient(self._common)
        self._sources: list[Source] = []

    def close(self) -> None:
        """Close what the test left open."""
        for source in self._sources:
            source.close()

    def create_topic(self, partitions: int = 1, most_bytes: int | None = None) -> str:
        topic = fresh("contract")
        config = {} if most_bytes is None else {"max.message.bytes": str(most_bytes)}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(
            REQUEST_S
        )
        end_s = time.monotonic() + REQUEST_S
        while topic not in self._admin.list_topics(timeout=REQUEST_S).topics:
            assert time.monotonic() < end_s, "the topic did not appear"
        return topic

    def produce(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        producer = Producer({**self._common, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(REQUEST_S) == 0

    def leave_hole(self, topic: str) -> None:
        producer = Producer({**self._common, "transactional.id": fresh("hole"), "linger.ms": 0})
        producer.init_transactions(REQUEST_S)
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        assert producer.flush(REQUEST_S) == 0
        producer.abort_transaction(REQUEST_S)

    def trim(self, topic: str, start: int) -> None:
        target = TopicPartition(topic, 0, start)
        for future in self._admin.delete_records([target]).values():
            future.result(REQUEST_S)

    def commit(self, group: str, topic: str, position: int) -> None:
        consumer = self._onlooker(group)
        consumer.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str] | None:
        consumer = self._onlooker(group)
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=REQUEST_S)
        consumer.close()
        return None if found.offset < 0 else (found.offset, found.metadata or "")

    def _onlooker(self, group: str) -> Consumer:
        """A client that speaks in a group's name without being a member."""
        return Consumer({**self._common, "group.id": group, "enable.auto.commit": False})

    def _end(self, consumer: Consumer, key: TopicPartition) -> int:
        """Where readers of committed records end.

        A transaction's end is confirmed before its markers are written, for which this waits; but
        not for one that stays open.
        """
        everything = {
            **self._common,
            "group.id": fresh("all"),
            "isolation.level": "read_uncommitted",
        }
        onlooker = Consumer(everything)
        until_s = time.monotonic() + MARKERS_S
        while True:
            _, written = onlooker.get_watermark_offsets(key, timeout=REQUEST_S)
            _, end = consumer.get_watermark_offsets(key, timeout=REQUEST_S)
            if end >= written or time.monotonic() > until_s:
                onlooker.close()
                return int(end)
            time.sleep(0.02)

    def new_group(self) -> str:
        return fresh("group")

    def source(self, group: str, start: Literal["earliest", "latest"] = "earliest") -> KafkaSource:
        consumer = {**self._common, "session.timeout.ms": 45_000, "heartbeat.interval.ms": 300}
        source = KafkaSource(KafkaOptions(consumer=consumer, admin=self._common), group, start)
        self._sources.append(source)
        return source

    def quarantining_source(self, group: str, sources: Mapping[str, str]) -> KafkaSource:
        consumer = {**self._common, "session.timeout.ms": 45_000, "heartbeat.interval.ms": 300}
        options = KafkaOptions(consumer=consumer, admin=self._common)
        source = KafkaSource(options, group, quarantined_topics=sources)
        self._sources.append(source)
        return source

    def park(self, topic: str, records: Sequence[Waiting], partition: int = 0) -> None:
        producer = Producer({**self._common, "linger.ms": 0})
        for key, headers in records:
            producer.produce(topic, b"v", key, partition, headers=list(headers))
        assert producer.flush(REQUEST_S) == 0

    def broadcast_source(self, group: str) -> KafkaBroadcastSource:
        consumer = {**self._common, "topic.metadata.refresh.interval.ms": 200}
        source = KafkaBroadcastSource(KafkaOptions(consumer=consumer, admin=self._common), group)
        self._sources.append(source)
        return source

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(REQUEST_S)
        end_s = time.monotonic() + REQUEST_S
        while (
            len(self._admin.list_topics(topic, timeout=REQUEST_S).topics[topic].partitions) < count
        ):
            assert time.monotonic() < end_s, "the partitions did not appear"

    def missing_topic(self) -> str:
        return fresh("missing")

    def records(self, topic: str) -> Sequence[Record]:
        consumer = self._onlooker(fresh("reader"))
        found: list[Record] = []
        partitions = self._admin.list_topics(topic, timeout=REQUEST_S).topics[topic].partitions
        for partition in partitions:
            key = TopicPartition(topic, partition, 0)
            end = self._end(consumer, key)
            consumer.assign([key])
            end_s = time.monotonic() + REQUEST_S
            position = 0
            # The position passes what no reader gets: markers and aborted records.
            while position < end:
                assert time.monotonic() < end_s, "the records could not be read"
                batch = consumer.consume(end, 0.05)
                # What the client says of its connections is no record, and moves no position.
                read = [message for message in batch if message.error() is None]
                found.extend(cast("list[Record]", read))
                position = consumer.position([key])[0].offset
        consumer.close()
        return found

    def sink(self) -> Sink:
        return KafkaSink(KafkaOptions(producer=self._common))

    def transactional_sink(self, group: str) -> KafkaTransactionalSink:
        options = KafkaOptions(producer=self._common, admin=self._common)
        return KafkaTransactionalSink(options, group, fresh("slot"))


@pytest.fixture
def kafka_world(bootstrap_servers: str) -> Iterator[KafkaWorld]:
    """The run's broker."""
    world = KafkaWorld(bootstrap_servers)
    yield world
    world.close()


class TestKafkaSource(SourceContract):
    """KafkaSource keeps the contract."""

    @pytest.fixture
    def world(  # type: ignore[override]
        self, kafka_world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
    ) -> KafkaWorld:
        """The run's broker; on a machine that stands still, answers are not asked for again."""
        monkeypatch.setattr(membership, "FRESH_S", inf)
        return kafka_world


class TestKafkaSourceOfTiers(TestKafkaSource):
    """So it does where the group's consumer leaves the reading to another."""

    @pytest.fixture(autouse=True)
    def read_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every topic is a tier."""
        read_by_another(monkeypatch)


class TestKafkaParked(ParkedContract):
    """KafkaSource keeps the contract."""

    @pytest.fixture
    def world(  # type: ignore[override]
        self, kafka_world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
    ) -> KafkaWorld:
        """The run's broker; on a machine that stands still, answers are not asked for again."""
        monkeypatch.setattr(membership, "FRESH_S", inf)
        return kafka_world


class TestKafkaParkedOfTiers(TestKafkaParked):
    """So it does where the group's consumer leaves the reading to another."""

    @pytest.fixture(autouse=True)
    def read_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every topic is a tier."""
        read_by_another(monkeypatch)


class TestKafkaSink(SinkContract):
    """KafkaSink keeps the contract."""

    @pytest.fixture
    def world(self, kafka_world: KafkaWorld) -> KafkaWorld:  # type: ignore[override]
        """The run's broker."""
        return kafka_world


class TestKafkaBroadcast(BroadcastContract):
    """KafkaBroadcastSource keeps the contract."""

    @pytest.fixture
    def world(self, kafka_world: KafkaWorld) -> KafkaWorld:  # type: ignore[override]
        """The run's broker."""
        return kafka_world


class TestKafkaTransactionalSink(TransactionContract):
    """KafkaTransactionalSink keeps the contract."""

    @pytest.fixture
    def world(self, kafka_world: KafkaWorld) -> KafkaWorld:  # type: ignore[override]
        """The run's broker."""
        return kafka_world
