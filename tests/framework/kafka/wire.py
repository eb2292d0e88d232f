"""What the tests of the Kafka shell share: topics, records, and listeners that write down."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.record import CommitPosition, Record, StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AckStats, Assignment, HandlerRules, HandlerState
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.topics.log_ranges import Place, Range
from ackfloor.ports import SourceListener
from ackfloor.testing import KafkaCluster

BOUND_S = 60.0


def fresh(name: str) -> str:
    """A name nobody has used."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def options(servers: str, **consumer: Any) -> KafkaOptions:
    """Client properties for tests: what stands still for a moment has not left its group."""
    common = {"bootstrap.servers": servers}
    return KafkaOptions(
        consumer={**common, "session.timeout.ms": 45_000, "heartbeat.interval.ms": 500, **consumer},
        producer=common,
        admin=common,
    )


#: Each way in which a group may share out its partitions, and what a consumer says for it.
PROTOCOLS: dict[str, dict[str, str]] = {
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "eager": {"partition.assignment.strategy": "range"},
    "broker": {"group.protocol": "consumer"},
}


def options_of(servers: str, protocol: str) -> KafkaOptions:
    """Client properties for a member under a protocol; KIP-848 takes no words on sessions."""
    made = options(servers)
    given = {"bootstrap.servers": servers} if protocol == "broker" else made.consumer
    return replace(made, consumer={**given, **PROTOCOLS[protocol]})


def make_topic(servers: str, partitions: int = 1, **config: str) -> str:
    """A new topic, ready for use."""
    topic = fresh("wire")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(60)
    until(lambda: topic in admin.list_topics(timeout=60).topics)
    return topic


def read_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every topic that is subscribed to for a tier that is in no hurry."""
    subscribe = KafkaSource.subscribe

    def apart(self: KafkaSource, topics: Sequence[str], listener: SourceListener) -> None:
        self._low_priority_topics = topics
        subscribe(self, topics, listener)

    monkeypatch.setattr(KafkaSource, "subscribe", apart)


def recreate(servers: str, topic: str) -> None:
    """Delete a topic and create it anew under its name."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=60).topics)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    until(lambda: topic in admin.list_topics(timeout=60).topics)


def produce(servers: str, topic: str, count: int, partition: int = 0, **extra: Any) -> None:
    """Write records with values b"0", b"1", ..."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **extra})
    for n in range(count):
        producer.produce(topic, str(n).encode(), partition=partition)
    assert producer.flush(60) == 0


def until(done: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Wait for a condition, and fail when it does not come.

    What takes long is asked for less and less often: most conditions ask a broker.
    """
    end_s = time.monotonic() + bound_s
    pause_s = 0.005
    while not done():
        assert time.monotonic() < end_s, "the condition did not come about in time"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, 0.05)


def untold(places: Collection[Place], timeout_s: float) -> dict[Place, Range]:
    """The ranges of logs, asked for together: nothing is told."""
    return {}


def stored(servers: str, group: str, topic: str, partition: int = 0) -> TopicPartition:
    """What the group has committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, partition)], timeout=60)
    finally:
        consumer.close()
    return found[0]


@dataclass
class Listener:
    """Writes down what a source reports; `on_revoke` may act inside the callback."""

    starts: list[StartPosition] = field(default_factory=list)
    revoked: list[Partition] = field(default_factory=list)
    lost: list[Partition] = field(default_factory=list)
    gone: list[tuple[Partition, int, int]] = field(default_factory=list)
    deleted: list[tuple[Partition, int]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    commits: list[tuple[CommitPosition, str | None]] = field(default_factory=list)
    on_revoke: Callable[[], None] = lambda: None
    on_assign: Callable[[], None] = lambda: None
    #: What a transaction under way commits or writes to.
    carried: set[Partition] = field(default_factory=set)

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        self.starts += starts
        self.on_assign()

    def on_revoked(self, partitions: Sequence[Partition]) -> None:
        self.revoked += partitions
        self.on_revoke()

    def on_lost(self, partitions: Sequence[Partition]) -> None:
        self.lost += partitions

    def on_gone(self, partition: Partition, position: int, end: int) -> None:
        self.gone.append((partition, position, end))

    def on_deleted(self, ends: Sequence[tuple[Partition, int]]) -> None:
        self.deleted += ends

    def on_records(self, records: Sequence[Record]) -> None:
        self.records += records
        self.batches.append(len(records))

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        self.commits += results

    def is_carried(self, partition: Partition) -> bool:
        return partition in self.carried

    @property
    def offsets(self) -> list[int]:
        """Offsets in the order in which they were reported."""
        return [record.offset() for record in self.records]

    @property
    def places(self) -> set[tuple[int, int]]:
        """The partition and offset of each record, however often it was read."""
        return {(record.partition(), record.offset()) for record in self.records}


def pump(source: KafkaSource, done: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Poll until a condition holds."""
    end_s = time.monotonic() + bound_s
    while not done():
        assert time.monotonic() < end_s, "the condition did not come about in time"
        source.poll(0.02)


@contextmanager
def silent(cluster: KafkaCluster) -> Iterator[None]:
    """The broker takes requests, and answers nothing: its process is stopped meanwhile."""
    [pid] = cluster.pids.values()
    os.kill(pid, signal.SIGSTOP)
    # On a busy machine its threads may go on for a moment, and answer.
    threads = Path(f"/proc/{pid}/task")
    until(lambda: all("State:\tT" in each.read_text() for each in threads.glob("*/status")))
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass(slots=True)
class Given:
    """A record to park."""

    _value: bytes | None = b"v"
    _key: bytes | None = b"k"

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)

    def leader_epoch(self) -> int | None:
        return 0

    def __len__(self) -> int:
        return len(self._value or b"")


def parcel(topic: str, record: Given, partition: int | None = 0, headers: Any = ()) -> PendingWrite:
    """A parcel for a topic, as the engine would make it."""
    assignment = Assignment(
        "orders", 0, 1, 0,
        handler=HandlerState(HandlerRules("bill")), source_topic="orders", tier_s=None,
        stats=AckStats("orders", "bill"), inbox=None,  # type: ignore[arg-type]
        clock=time.monotonic, now_ms=0,
    )  # fmt: skip
    delivery = TrackedDelivery(assignment, record, 0, len(record), 0.0)
    made = PendingWrite(delivery, None, Envelope(), 0.0)
    made.topic, made.partition, made.headers = topic, partition, headers
    return made


def join(
    sources: list[KafkaSource],
    servers: str,
    group: str,
    topic: str,
    start: str = "earliest",
    **consumer: object,
) -> tuple[KafkaSource, Listener]:
    """A source that has its first assignment."""
    source = KafkaSource(options(servers, **consumer), group, start)  # type: ignore[arg-type]
    listener = Listener()
    source.subscribe([topic], listener)
    sources.append(source)
    pump(source, lambda: listener.starts)
    return source, listener


def commit(source: KafkaSource, topic: str, position: int, metadata: str = "") -> CommitPosition:
    """Commit one position of partition 0 and wait for the answer."""
    wanted = CommitPosition(topic, 0, position, metadata, 1)
    source.commit([wanted], wait=True)
    return wanted


def throw_out(servers: str, group: str, membership: object) -> None:
    """Have the only broker take a member for one that has left: the LeaveGroup request, version 0.

    `membership` is what the member's client tells of it.
    """
    assert isinstance(membership, bytes)
    member = membership.split(b"\0")[-2]
    names = b"".join(struct.pack(">h", len(each)) + each for each in (group.encode(), member))
    request = struct.pack(">hhih", 13, 0, 1, -1) + names
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), BOUND_S) as broker:
        broker.sendall(struct.pack(">i", len(request)) + request)
        answer = broker.recv(64)
    assert struct.unpack(">iih", answer) == (6, 1, 0), answer


def committed_records(
    servers: str, topic: str, within_s: float = inf, **client: Any
) -> list[Message]:
    """What a reader of committed records finds in a topic, by partition and offset.

    Args:
        within_s: how long it may take to read the topic to its end.
        client: further client properties.
    """
    consumer = Consumer(
        {
            **client,
            "bootstrap.servers": servers,
            "group.id": fresh("look"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[Message] = []
    until_s = time.monotonic() + within_s
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        left = set(partitions)
        while left and time.monotonic() < until_s:
            # Not `consume(500, 1.0)`: it would wait for 500.
            for message in consumer.consume(1, 1.0) + consumer.consume(500, 0):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    assert not left, f"{topic} was not read to its end: {sorted(left)}"
    return sorted(found, key=lambda m: (m.partition() or 0, m.offset() or 0))
