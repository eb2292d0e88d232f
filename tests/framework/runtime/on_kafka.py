"""A worker on a real broker in the test's own process: `Live` with Kafka where memory was.

The test's thread is the owner thread of every worker here: it turns them one after the other, so
that two workers of a group can rebalance without a second process. Topics and groups are the
test's own and are deleted at the end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ackfloor import App, CircuitBreaker
from ackfloor.core.records.record import Headers
from ackfloor.declare.exactly_once import with_transactions
from ackfloor.errors import ConfigError
from ackfloor.launch import Launch
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.settings import Settings
from tests.framework.runtime.live import Watcher
from tests.kafka_topics import delete_topics

PATIENCE_S = 120.0
#: Each way in which a group may share out its partitions, and what a consumer says for it.
PROTOCOLS: dict[str, dict[str, str]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "broker": {"group.protocol": "consumer"},
}
#: After it a member that is silent is taken for dead. No test waits for it, and a machine that
#: stands still for a moment must expel nobody.
SESSION_S = 45.0
#: What a node says of a log while it hears of a creation or of an election.
PASSING = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def consumer_of(protocol: str, session_s: float = SESSION_S) -> dict[str, str]:
    """The consumer's properties for a protocol, with a short session where it may ask for one."""
    own = PROTOCOLS[protocol]
    if protocol == "broker":
        return own
    session_ms = str(round(session_s * 1000))
    return {**own, "session.timeout.ms": session_ms, "heartbeat.interval.ms": "300"}


class Place:
    """A source topic on a real broker, and the group and topics that belong to it."""

    def __init__(self, servers: str, partitions: int = 1, **config: str) -> None:
        self.servers = servers
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.group = f"shop-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": servers})
        large = {"message.max.bytes": 10_000_000}
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 2, **large})
        # It does not wait for open transactions.
        own = {"group.id": self.group, "isolation.level": "read_uncommitted"}
        self._reader = Consumer({"bootstrap.servers": servers, **own})
        self.create(self.topic, partitions, **config)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, and return when the broker tells of it."""
        self.admin.create_topics([NewTopic(topic, partitions, -1, config=config)])[topic].result(60)
        until_s = time.monotonic() + PATIENCE_S
        # All others are not asked for: the run's broker has hundreds.
        while self.admin.list_topics(topic, timeout=60).topics[topic].error is not None:
            assert time.monotonic() < until_s, f"{topic} was not created"
            time.sleep(0.02)

    def delete(self, topic: str) -> None:
        """Delete a topic, and return when the broker tells of it no more."""
        self.admin.delete_topics([topic])[topic].result(60)
        until_s = time.monotonic() + PATIENCE_S
        while topic in self.admin.list_topics(timeout=60).topics:
            assert time.monotonic() < until_s, f"{topic} was not deleted"
            time.sleep(0.02)

    def send(
        self,
        n: int = 1,
        value: bytes = b"x",
        *,
        partition: int = -1,
        topic: str | None = None,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Write records; the broker has them when this returns."""
        given = None if headers is None else list(headers)
        for _ in range(n):
            self._producer.produce(
                topic or self.topic, value, key, partition=partition, headers=given
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def committed(self, topic: str | None = None, partition: int = 0) -> int:
        """The group's committed position, -1 where it has none."""
        found = self._found(topic, partition)
        return -1 if found is None else int(found.offset)

    def metadata(self, topic: str | None = None, partition: int = 0) -> str:
        """What stands beside the group's committed position."""
        found = self._found(topic, partition)
        return "" if found is None else str(found.metadata or "")

    def _found(self, topic: str | None, partition: int) -> TopicPartition | None:
        wanted = TopicPartition(topic or self.topic, partition)
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                # Not the admin client: it crashes where the coordinator is just moving.
                [found] = self._reader.committed([wanted], timeout=5.0)
            except KafkaException:
                # A coordinator that is being found tells nothing yet, which is not "nothing".
                if time.monotonic() > until_s:
                    raise
                continue
            if found.error is None:
                return None if found.offset < 0 else found
            assert time.monotonic() < until_s, f"nobody tells what is committed: {found.error}"

    def end(self, topic: str, partition: int = 0) -> int:
        """Where the log of a partition ends."""
        wanted = TopicPartition(topic, partition)
        until_s = time.monotonic() + PATIENCE_S
        while True:
            found = self.admin.list_offsets({wanted: OffsetSpec.latest()})[wanted]
            try:
                return int(found.result(60).offset)
            except KafkaException as exc:
                if exc.args[0].code() not in PASSING or time.monotonic() > until_s:
                    raise
                self.admin.list_topics(topic, timeout=60)
                time.sleep(0.1)

    def own(self) -> list[str]:
        """Our own topics: the tiers and the dead letters."""
        names = self.admin.list_topics(timeout=60).topics
        return sorted(name for name in names if name.startswith(f"{self.topic}--"))

    def our(self, part: str) -> str:
        """The one of them with this in its name; a node may hear of it after its creation."""
        until_s = time.monotonic() + PATIENCE_S
        while not (found := [name for name in self.own() if part in name]):
            assert time.monotonic() < until_s, f"nobody tells of a topic with {part} in its name"
            time.sleep(0.02)
        [name] = found
        return name

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; waited for while there is none or nobody tells."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            found = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
            if partition in found and found[partition].leader >= 0:
                return int(found[partition].leader)
            assert time.monotonic() < until_s, f"nobody leads {topic}/{partition}"
            time.sleep(0.05)

    def read(self, topic: str) -> list[Message]:
        """Everything that a topic holds, but what aborted transactions left."""
        reader = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "enable.auto.commit": False}
        )
        try:
            partitions = self.admin.list_topics(timeout=60).topics[topic].partitions
            ends = {number: self.end(topic, number) for number in partitions}
            reader.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Message] = []
            until_s = time.monotonic() + PATIENCE_S
            # Positions pass what no reader gets: the marks and the records of transactions.
            asked = reader.assignment()
            while any(max(p.offset, 0) < ends[p.partition] for p in reader.position(asked)):
                assert time.monotonic() < until_s, f"{topic} could not be read"
                found += [m for m in reader.consume(1000, 0.05) if m.error() is None]
            return found
        finally:
            reader.close()

    def set_topic(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic."""
        self._alter(ResourceType.TOPIC, topic, name, value)

    def set_group(self, name: str, value: str) -> None:
        """Change one setting of the group, under the broker's own protocol."""
        self._alter(ResourceType.GROUP, self.group, name, value)

    def _alter(self, kind: ResourceType, subject: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, subject, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(60)

    def clear(self) -> None:
        """Leave no topic behind."""
        names = self.admin.list_topics(timeout=60).topics
        delete_topics(self.admin, [name for name in names if name.startswith(self.topic)])
        # The broker may go before this object does, and its clients would complain.
        self._reader.close()
        del self.admin, self._producer


class OnKafka:
    """One worker of an app; made by `on_kafka`."""

    def __init__(
        self,
        app: App,
        sections: Mapping[str, Mapping[str, object]],
        observers: Sequence[Any],
        breakers: bool,
        patience_s: float,
    ) -> None:
        self.watcher = Watcher()
        settings = with_transactions(Settings.from_code(sections), app.handlers)
        off = CircuitBreaker(enabled=False)
        handlers = app.handlers if breakers else [replace(s, breaker=off) for s in app.handlers]
        self.launch = Launch(app, settings, settings.applied(handlers))
        self._prepare(patience_s)
        events = EventLoopThread()
        topology = self.launch.topology()
        self.worker = Worker(
            app,
            self.launch.handlers,
            self.launch.worker_config(),
            topology,
            self.launch.outside(events, "test", topology),
            [self.watcher, *observers],
        )
        self.closed = False
        try:
            self.loop: Loop = self.worker.start()
        except BaseException:
            self.worker.close(lambda: True)
            raise

    def _prepare(self, patience_s: float) -> None:
        """A node that has just started may not know of a new topic yet."""
        until_s = time.monotonic() + patience_s
        while True:
            try:
                return self.launch.prepare_topics("30s")
            except ConfigError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.2)

    def owns(self, topic: str) -> list[int]:
        """The partitions of a topic that this worker has."""
        return sorted(number for name, number in self.loop.engine.assignments if name == topic)

    def paused(self, topic: str) -> list[bool]:
        """For each partition of a topic that this worker has, whether it is paused."""
        assignments = self.loop.engine.assignments
        return [assignments[topic, number].paused for number in self.owns(topic)]

    def floor(self, topic: str, partition: int = 0) -> int:
        """The floor of a partition, -1 where it is not assigned."""
        found = self.loop.engine.assignments.get((topic, partition))
        return -1 if found is None else found.tracker.floor()

    def faults(self) -> str:
        """Everything that keeps records open, as text."""
        found = self.loop.engine.faults.all()
        return "; ".join(f"{f.kind} {f.subject}: {f.message}" for f in found)

    def close(self, forced: Callable[[], bool] = lambda: False) -> int:
        """End the worker in order; returns how many handlers were cut short."""
        self.closed = True
        return self.worker.close(forced)


class Crowd:
    """The workers of a test, turned together."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.workers: list[OnKafka] = []

    def start(
        self,
        app: App,
        *,
        observers: Sequence[Any] = (),
        breakers: bool = False,
        patience_s: float = PATIENCE_S,
        **settings: object,
    ) -> OnKafka:
        """Start one more worker of an app; `settings` are those of `app`, `consumer` of Kafka.

        Without a circuit breaker, unless it is asked for: many tests fail every record. The topics
        may be missing for `patience_s` seconds.
        """
        kafka = {
            "bootstrap_servers": self.place.servers,
            "consumer": settings.pop("consumer", None) or consumer_of("cooperative"),
            "producer": settings.pop("producer", {}),
        }
        if "group.protocol" in kafka["consumer"]:
            # The broker decides it, for the group; its default would make every test wait.
            self.place.set_group("consumer.heartbeat.interval.ms", "200")
            session_ms = str(round(SESSION_S * 1000))
            self.place.set_group("consumer.session.timeout.ms", session_ms)
        own = {"group": app.group, "commit_interval": "50ms", **settings}
        sections = {"kafka": kafka, "app": own}
        self.workers.append(OnKafka(app, sections, observers, breakers, patience_s))
        return self.workers[-1]

    def turn(self, max_wait_s: float = 0.005) -> None:
        """One turn of each worker that runs."""
        for worker in self.workers:
            if not worker.closed:
                worker.loop.turn(max_wait_s)

    def until(self, condition: Callable[[], object], what: str = "it") -> None:
        """Turn all workers until the condition holds; what takes long is asked for less often."""
        deadline_s = time.monotonic() + PATIENCE_S
        wait_s = 0.005
        while not condition():
            assert time.monotonic() < deadline_s, f"{what} did not happen in {PATIENCE_S:g} s"
            self.turn(wait_s)
            wait_s = min(wait_s * 1.1, 0.02)

    def turn_for(self, seconds: float) -> None:
        """Turn all workers for a while, to give what must not happen its chance."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.turn()


@contextmanager
def on_kafka(servers: str, partitions: int = 1, **config: str) -> Iterator[Crowd]:
    """A source topic and room for workers; all of it is gone afterwards."""
    place = Place(servers, partitions, **config)
    crowd = Crowd(place)
    try:
        yield crowd
    finally:
        for worker in crowd.workers:
            if not worker.closed:
                worker.close(lambda: True)
        place.clear()
