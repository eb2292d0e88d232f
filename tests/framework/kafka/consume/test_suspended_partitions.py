"""Partitions that were given up in a silence and are taken up again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackfloor.core.records.record import StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.kafka.consume import membership
from ackfloor.kafka.consume.committer import Committer
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.membership import Membership
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.wire import Listener, fresh, make_topic, produce, pump

SOURCE, RETRY = "orders", "orders--g--retry--1m"
COUNTS = {SOURCE: 1, RETRY: 1}
DESCRIBED = {topic: Described("id", (0,)) for topic in COUNTS}


class Client:
    """Knows what it is assigned, and refuses what a client refuses."""

    def __init__(self) -> None:
        self.read: set[tuple[str, int]] = set()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these as well."""
        for partition in partitions:
            if (partition.topic, partition.partition) in self.read:
                raise KafkaException(KafkaError(KafkaError._CONFLICT))
            self.read.add((partition.topic, partition.partition))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these."""
        for partition in partitions:
            self.read.remove((partition.topic, partition.partition))

    def assignment(self) -> list[TopicPartition]:
        """What it reads."""
        return [TopicPartition(*place) for place in self.read]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The group's committed positions."""
        return partitions

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Its next positions: it has fetched nothing."""
        return partitions

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching."""

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch again."""

    def seek(self, partition: TopicPartition) -> None:
        """Go on elsewhere."""

    def list_topics(self, topic: str, timeout: float) -> None:
        """Look a topic up."""


class Ids:
    """Describes the topics, in place of an admin client."""

    def __init__(self) -> None:
        #: What a look brings, once.
        self.news: dict[str, Described] = {}
        #: What is told at once, and what the last look was to ask for soon.
        self.told = dict(DESCRIBED)
        self.unknown: set[str] = set()

    def learn(self, topics: set[str], within_s: float) -> dict[str, Described]:
        """The topics by the brokers' answer."""
        return {topic: self.told[topic] for topic in topics}

    def look(self, _read: object, _resting: object, unknown: set[str]) -> dict[str, Described]:
        """What was learned since."""
        self.unknown = unknown
        news, self.news = self.news, {}
        return news

    def gone(self, topic: str) -> bool:
        """Nothing is deleted."""
        return False

    def log_ranges(self, *_: object) -> dict[tuple[str, int], Any]:
        """No ranges."""
        return {}


class Commits:
    """Commits nothing."""

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is outstanding."""


def made(
    monkeypatch: pytest.MonkeyPatch,
    clients: tuple[Client, Client],
    ids: Ids,
    seen: Listener,
    away: Collection[str] = (),
) -> Membership:
    """A member that reads the source with its first client, and the retry topic with the other.

    Topics in `away` have no start.
    """

    def resolved(
        consumer: Consumer, committed: Sequence[TopicPartition], *_: object
    ) -> list[StartPosition]:
        return [StartPosition(p.topic, p.partition, 7) for p in committed if p.topic not in away]

    monkeypatch.setattr(membership, "resolve", resolved)
    group, reader = (cast("Consumer", client) for client in clients)
    return Membership(
        group,
        SplitConsumer(group, reader, [RETRY]),
        seen,
        cast("Committer", Commits()),
        topic_ids=cast("TopicIds", ids),
        copartitioned=CopartitionedRetryTopics({RETRY: SOURCE}, COUNTS),
        incremental=True,
        start="earliest",
    )


def test_a_retry_partition_that_is_new_begins_after_the_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its source partition may be another member's by now, and it belongs to the same member."""
    group, reader, ids, seen = Client(), Client(), Ids(), Listener()
    member = made(monkeypatch, (group, reader), ids, seen)
    member._assigned([TopicPartition(SOURCE, 0)])
    member.suspend()
    ids.told[RETRY] = Described("id", (0, 1))
    ids.news = {RETRY: ids.told[RETRY]}
    begun = len(seen.starts)
    member.look()
    assert (len(seen.starts), reader.read) == (begun, {(RETRY, 0)})
    member.take_up()
    assert sorted((start.topic, start.partition) for start in seen.starts[begun:]) == [
        (SOURCE, 0),
        (RETRY, 0),
        (RETRY, 1),
    ]
    assert reader.read == {(RETRY, 0), (RETRY, 1)}


def test_a_retry_partition_without_a_start_is_read_once_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader gives it back meanwhile: it would refuse to be assigned it twice."""
    group, reader, ids, seen = Client(), Client(), Ids(), Listener()
    away: set[str] = set()
    member = made(monkeypatch, (group, reader), ids, seen, away)
    member._assigned([TopicPartition(SOURCE, 0)])
    assert (group.read, reader.read) == ({(SOURCE, 0)}, {(RETRY, 0)})
    member.suspend()
    assert sorted(seen.lost) == [(SOURCE, 0), (RETRY, 0)]
    # Its leader is away when the coordinator answers again.
    away.add(RETRY)
    member.take_up()
    assert [start.topic for start in seen.starts[2:]] == [SOURCE]
    assert (group.read, reader.read) == ({(SOURCE, 0)}, set())
    away.clear()
    ids.news = DESCRIBED
    member.look()
    assert [start.topic for start in seen.starts[2:]] == [SOURCE, RETRY]
    assert reader.read == {(RETRY, 0)}


@pytest.mark.kafka
def test_a_transaction_from_before_a_silence_ends_before_its_partitions_begin(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The group takes its commit, as the member is the same: what was read before it would undo it.

    The other partitions go on at once.
    """
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    for partition in (0, 1):
        produce(bootstrap_servers, topic, 3, partition)
    source, listener = opened(sources, bootstrap_servers, group, topic, "broker")
    pump(source, lambda: len(listener.records) == 6)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("slot")})
    producer.init_transactions(60)
    producer.begin_transaction()
    member = source.membership()
    listener.carried.add(Partition(topic, 0))
    listener.starts.clear()
    source._membership.suspend()
    assert len(listener.lost) == 2
    source._membership.take_up()
    for _ in range(5):
        source.poll(0.1)
    assert [start.partition for start in listener.starts] == [1]
    # Only now its commit arrives, with the membership of its beginning.
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], member, 60)
    producer.commit_transaction(60)
    listener.carried.clear()
    pump(source, lambda: len(listener.starts) == 2)
    assert (listener.starts[1].partition, listener.starts[1].position) == (0, 2)
    pump(source, lambda: len(listener.records) == 10)
    assert [r.offset() for r in listener.records[6:] if r.partition() == 0] == [2]
