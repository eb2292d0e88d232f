"""The brokers as the soak uses them: topics, commits, ends, dead letters; past every proxy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
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

from ackfloor.core.parking.topic_names import Kind, parse_topic
from tests.soak.ledger import Identity, Place
from tests.soak.plan import GROUP, LOOSE, SOURCES, Plan
from tests.soak.producer import identity_in, quiet

_ANSWER_S = 10.0
T = TypeVar("T")

#: Of the compacted source: segments are closed and cleaned within seconds.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "3000",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "3000",
    "min.compaction.lag.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Commit:
    """What the group has committed for a partition."""

    position: int
    metadata: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic, by its headers."""

    place: Place
    identity: Identity
    reason: str


class Topics:
    """The soak's topics. Each thread that asks has an object of its own."""

    def __init__(self, plan: Plan, servers: str) -> None:
        self._plan = plan
        self._servers = servers
        self._admin = AdminClient(quiet(servers))
        # It asks for commits and never joins the group.
        self._reader = Consumer(
            {
                **quiet(servers),
                "group.id": GROUP,
                "enable.auto.commit": False,
                # Else an open transaction of a worker hides the commit before it.
                "isolation.level": "read_uncommitted",
            }
        )

    def create_sources(self) -> None:
        """Create the source topics; the workers create the rest."""
        replicas = min(3, self._plan.nodes)
        for name in SOURCES:
            config = COMPACTED if name == LOOSE else {}
            new = NewTopic(name, self._plan.partitions, replicas, config=config)
            _settled(self._admin.create_topics([new]))

    def listed(self) -> dict[str, int]:
        """Topics of the soak with their number of partitions."""
        topics = self._admin.list_topics(timeout=_ANSWER_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items() if _ours(name)}

    def tiers(self) -> list[str]:
        """The retry topics."""
        return [name for name in self.listed() if _kind(name) == "retry"]

    def dead_letter_topics(self) -> list[str]:
        """The dead-letter topics."""
        return [name for name in self.listed() if _kind(name) == "dlq"]

    def consumed(self) -> list[tuple[str, int]]:
        """Every partition that the group consumes."""
        return [
            (name, partition)
            for name, count in self.listed().items()
            if _kind(name) != "dlq"
            for partition in range(count)
        ]

    def committed(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Commit]:
        """The group's commits; partitions without one are left out."""
        asked = [TopicPartition(*partition) for partition in partitions]
        found = self._reader.committed(asked, timeout=_ANSWER_S)
        return {
            (p.topic, p.partition): Commit(p.offset, p.metadata or "")
            for p in found
            if p.offset >= 0 and p.error is None
        }

    def ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The position after the last record of each partition."""
        wanted = list(partitions)
        return self._until_told(lambda: self._ends(wanted))

    def _until_told(self, question: Callable[[], T]) -> T:
        """Ask again: around a leader's change clients and brokers disagree for seconds."""
        until_s = time.monotonic() + 20
        while True:
            try:
                return question()
            except KafkaException:
                if time.monotonic() > until_s:
                    raise
                # A client that knew a topic before it was created anew keeps its old leaders.
                self._admin = AdminClient(quiet(self._servers))
            time.sleep(0.3)

    def _ends(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        latest: Any = OffsetSpec.latest
        asked = {TopicPartition(*partition): latest() for partition in partitions}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ANSWER_S
        )
        found = {(tp.topic, tp.partition): f.result().offset for tp, f in answers.items()}
        if any(end < 0 for end in found.values()):
            # So the client tells it where a broker has not answered and others have.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def unsettled(self, topics: Iterable[str] = ()) -> dict[tuple[str, int], int]:
        """Records that the group has not settled, where there are any.

        Commits are read first: where they equal ends that were read later, all is settled.
        """
        wanted = set(topics)
        places = [place for place in self.consumed() if not wanted or place[0] in wanted]
        committed = self._until_told(lambda: self.committed(places))
        left = {
            place: end - (committed[place].position if place in committed else 0)
            for place, end in self.ends(places).items()
        }
        return {place: count for place, count in left.items() if count > 0}

    def allow_writes(self, topic: str, *, allowed: bool) -> None:
        """Whether a topic takes writes: where not, no record's time is recent enough for it.

        To ask for more replicas in sync than there are would not do: brokers lower that to what
        there are.
        """
        longest_ms = 2**63 - 1 if allowed else 0
        entry = ConfigEntry(
            "message.timestamp.before.max.ms",
            str(longest_ms),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        # Said again, it says the same; a topic that stays closed is a fault that never ends.
        self._until_told(lambda: _settled(self._admin.incremental_alter_configs([resource])))

    def config_of(self, topic: str) -> Mapping[str, str]:
        """What is set for a topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answer,) = self._admin.describe_configs([resource]).values()
        entries = answer.result(_ANSWER_S)
        return {
            name: str(entry.value)
            for name, entry in entries.items()
            if entry.source == 1  # the topic's own, no default
        }

    def recreate(self, topic: str, config: Mapping[str, str]) -> None:
        """Delete a topic and create it again under its name."""
        _settled(self._admin.delete_topics([topic], operation_timeout=_ANSWER_S))
        # Until it is there again nothing may end this: brokers that are busy are asked again.
        _wait(lambda: topic not in self._until_told(self.listed), f"{topic} is gone")
        new = NewTopic(topic, self._plan.partitions, min(3, self._plan.nodes), config=dict(config))
        # The name stays taken for a moment.
        _wait(lambda: _tried(lambda: _settled(self._admin.create_topics([new]))), f"{topic} again")

    def id_of(self, topic: str) -> str:
        """The topic's id, another one each time it is created."""

        def ask() -> str:
            (answer,) = self._admin.describe_topics(TopicCollection([topic])).values()
            return str(answer.result(_ANSWER_S).topic_id)

        return self._until_told(ask)

    def in_sync(self) -> bool:
        """Whether every partition has all its replicas in sync, and a leader.

        Not as far as is known while no broker answers.
        """
        try:
            topics = self._admin.list_topics(timeout=_ANSWER_S).topics
        except KafkaException:
            return False
        return all(
            partition.leader > 0 and len(partition.isrs) == len(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def leader_of(self, topic: str, partition: int) -> int:
        """The node that leads a partition; -1 where none does."""
        listed = self._admin.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        return int(listed.partitions[partition].leader)

    def dead_letters(self) -> list[DeadLetter]:
        """Every dead letter there is."""
        topics = self.dead_letter_topics()
        places = [(n, p) for n, count in self.listed().items() if n in topics for p in range(count)]
        ends = {place: end for place, end in self.ends(places).items() if end > 0}
        reader = Consumer(
            {
                **quiet(self._servers),
                "group.id": f"{GROUP}-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            return _read_all(reader, ends)
        finally:
            reader.close()

    def close(self) -> None:
        """Let go of the brokers."""
        self._reader.close()


def _read_all(reader: Consumer, ends: Mapping[tuple[str, int], int]) -> list[DeadLetter]:
    reader.assign([TopicPartition(*place, 0) for place in ends])
    left = set(ends)
    found: list[DeadLetter] = []
    give_up_s = time.monotonic() + 60
    while left:
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"dead letters can't be read to the end: {left}")
        for message in reader.consume(500, 0.5):
            topic, partition = message.topic(), message.partition()
            if (error := message.error()) is not None:
                # Any other than its end is for the client to get over.
                if error.code() == KafkaError._PARTITION_EOF:
                    left -= {(topic, partition)}
                continue
            assert topic is not None
            assert partition is not None
            headers = {
                name: bytes(value or b"").decode() for name, value in message.headers() or ()
            }
            found.append(
                DeadLetter(
                    (topic, partition, message.offset() or 0),
                    identity_in(headers),
                    headers["ackfloor.reason"],
                )
            )
    return found


def _ours(name: str) -> bool:
    parsed = parse_topic(name)
    return name in SOURCES or (parsed is not None and parsed.group == GROUP)


def _kind(name: str) -> Kind | None:
    parsed = parse_topic(name)
    return None if parsed is None else parsed.kind


def _settled(answers: Mapping[Any, Any]) -> None:
    for answer in answers.values():
        answer.result(30)


def _tried(action: Callable[[], None]) -> bool:
    try:
        action()
    except KafkaException:
        return False
    return True


def _wait(done: Callable[[], bool], what: str, within_s: float = 40.0) -> None:
    until_s = time.monotonic() + within_s
    while not done():
        if time.monotonic() > until_s:
            raise RuntimeError(f"waited {within_s:g} s in vain until {what}")
        time.sleep(0.1)
