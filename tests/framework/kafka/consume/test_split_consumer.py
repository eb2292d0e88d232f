"""SplitConsumer on a real broker: tiers are read by a client of their own, and only by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ackfloor.core.records.record import CommitPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from tests.framework.kafka.wire import (
    Listener,
    commit,
    fresh,
    make_topic,
    options,
    produce,
    pump,
    stored,
    until,
)

pytestmark = [pytest.mark.kafka]


def opened(
    sources: list[KafkaSource], servers: str, group: str, topic: str, tier: str, batch: int = 2_000
) -> tuple[KafkaSource, Listener]:
    """A source of a topic and of a tier that is read apart."""
    # Of two members each gets one partition of each topic.
    given = options(servers, **{"partition.assignment.strategy": "range"})
    source = KafkaSource(given, group, batch=batch, low_priority_topics=[tier])
    listener = Listener()
    source.subscribe([topic, tier], listener)
    sources.append(source)
    return source, listener


def places(listener: Listener) -> list[tuple[str, int]]:
    """What was read, in the order of its topics and offsets."""
    return sorted((r.topic(), r.offset()) for r in listener.records)


def test_both_are_read_once_and_committed_by_the_member(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The group hears of the tier from its member alone."""
    topic, tier, group = make_topic(bootstrap_servers), make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    produce(bootstrap_servers, tier, 4)
    source, listener = opened(sources, bootstrap_servers, group, topic, tier)
    pump(source, lambda: len(listener.records) >= 7)
    every = [*((topic, n) for n in range(3)), *((tier, n) for n in range(4))]
    assert places(listener) == sorted(every)
    assert source.positions() == {(topic, 0): 3, (tier, 0): 4}
    assert source.high_watermarks() == {(topic, 0): 3, (tier, 0): 4}
    commit(source, tier, 4)
    assert stored(bootstrap_servers, group, tier).offset == 4
    produce(bootstrap_servers, tier, 1)
    pump(source, lambda: len(listener.records) >= 8)
    assert places(listener) == sorted([*every, (tier, 4)])


def test_closing_leaves_no_failure_behind(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Leaving the group takes partitions from the reader, which is still there."""
    topic, tier = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    source, listener = opened(sources, bootstrap_servers, fresh("g"), topic, tier)
    pump(source, lambda: listener.starts)
    source.close()
    assert source._membership.failure is None


class Told:
    """A client that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def __getattr__(self, name: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: self.told.append((name, [p.topic for p in partitions]))


def test_a_move_in_a_tier_says_nothing_to_the_group() -> None:
    """An assignment, be it empty, answers a revoke that waits to be told: nobody would drain."""
    group, reader = Told(), Told()
    reading = SplitConsumer(cast("Consumer", group), cast("Consumer", reader), ["tier"])
    reading.move([TopicPartition("tier", 0, 5)])
    assert group.told == []
    assert reader.told == [("incremental_unassign", ["tier"]), ("incremental_assign", ["tier"])]
    reader.told.clear()
    others = [TopicPartition("orders", 0, 1), TopicPartition("tier", 1, 2)]
    reading.move_beside([TopicPartition("tier", 0, 5)], others)
    assert group.told == []
    assert reader.told == [("assign", ["tier", "tier"])]
    reader.told.clear()
    reading.move_beside([TopicPartition("orders", 1, 5)], others)
    assert group.told == [("assign", ["orders", "orders"])]
    assert reader.told == []


def test_a_pause_of_one_leaves_the_other_running(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Each pause goes to the client that reads the partition, and both come back by a seek."""
    topic, tier = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    source, listener = opened(sources, bootstrap_servers, fresh("g"), topic, tier)
    pump(source, lambda: listener.starts)
    for still, running in ((topic, tier), (tier, topic)):
        before = len(listener.records)
        source.pause([Partition(still, 0)])
        produce(bootstrap_servers, still, 2)
        produce(bootstrap_servers, running, 2)
        pump(source, lambda before=before: len(listener.records) >= before + 2)  # type: ignore[misc]
        assert {r.topic() for r in listener.records[before:]} == {running}
        source.resume([(Partition(still, 0), source.positions().get((still, 0), 0))])
        pump(source, lambda before=before: len(listener.records) >= before + 4)  # type: ignore[misc]
    every = [(name, n) for name in (topic, tier) for n in range(4)]
    assert places(listener) == sorted(every)


def test_a_flood_leaves_the_tier_its_turn(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Full batches of the topic do not keep what waits in the tier out."""
    topic, tier = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 20_000)
    produce(bootstrap_servers, tier, 1)
    source, listener = opened(sources, bootstrap_servers, fresh("g"), topic, tier, batch=10)
    pump(source, lambda: any(r.topic() == tier for r in listener.records), 120)
    assert len(listener.records) < 20_001


def test_who_reads_no_further_ahead_gets_the_tier_all_the_same(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The source's records come one by one with the callbacks, and all of them later on."""
    topic, tier, group = make_topic(bootstrap_servers), make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 5_000)
    produce(bootstrap_servers, tier, 500)
    source, listener = opened(sources, bootstrap_servers, group, topic, tier)
    polls = 0

    def of(name: str) -> list[int]:
        return [r.offset() for r in listener.records if r.topic() == name]  # type: ignore[misc]

    def tier_is_read() -> bool:
        nonlocal polls
        source.poll(0.002, ahead=False)
        polls += 1
        return len(of(tier)) == 500 and len(of(topic)) > 10

    until(tier_is_read)
    assert len(of(topic)) <= polls
    source.commit([CommitPosition(topic, 0, 1, "", 1)], wait=False)

    def answered() -> bool:
        source.poll(0.002, ahead=False)
        return bool(listener.commits)

    until(answered)
    assert stored(bootstrap_servers, group, topic).offset == 1
    pump(source, lambda: len(of(topic)) >= 5_000)
    assert (of(topic), of(tier)) == (list(range(5_000)), list(range(500)))


def test_a_record_without_a_value_ends_the_wait(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """A message of no length is a message."""
    topic, tier = make_topic(bootstrap_servers), make_topic(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for name in (topic, tier):
        producer.produce(name, None, b"k", partition=0)
    assert producer.flush(60) == 0
    source, listener = opened(sources, bootstrap_servers, fresh("g"), topic, tier)
    pump(source, lambda: len(listener.records) >= 2)
    assert places(listener) == sorted([(topic, 0), (tier, 0)])


def test_a_tier_that_leaves_is_read_no_more_and_comes_back(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """A member that joins takes partitions of both, and gives them back when it leaves."""
    topic, tier = make_topic(bootstrap_servers, 2), make_topic(bootstrap_servers, 2)
    group = fresh("g")
    first, seen = opened(sources, bootstrap_servers, group, topic, tier)
    pump(first, lambda: seen.starts)
    second, other = opened(sources, bootstrap_servers, group, topic, tier)

    def shared() -> bool:
        first.poll(0.02)
        return {s.topic for s in other.starts} == {topic, tier}

    pump(second, shared)
    theirs = {(s.topic, s.partition) for s in other.starts}
    for name in (topic, tier):
        for partition in range(2):
            produce(bootstrap_servers, name, 5, partition)

    def both() -> bool:
        first.poll(0.02)
        return len(seen.records) + len(other.records) >= 20

    pump(second, both)
    assert {(r.topic(), r.partition()) for r in other.records} == theirs
    assert not theirs & {(r.topic(), r.partition()) for r in seen.records}
    before = len(seen.starts)
    second.close()
    sources.remove(second)
    pump(first, lambda: len(seen.starts) >= before + len(theirs))
    for name, partition in theirs:
        produce(bootstrap_servers, name, 1, partition)
    here = len(seen.records)
    pump(first, lambda: {(r.topic(), r.partition()) for r in seen.records[here:]} >= theirs)


def test_what_is_read_no_more_does_not_rest() -> None:
    """Its end would be asked for for ever; with it a topic that was deleted, which answers none."""
    clients = [Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) for _ in range(2)]
    both = SplitConsumer(*clients, tiers=["tier"])
    every = [TopicPartition("tier", number, 0) for number in range(4)]
    both.assign([])
    both.incremental_assign(every)
    both.pause(every)
    both.resume(every[:1])
    assert both.resting == {("tier", 1), ("tier", 2), ("tier", 3)}
    both.forget(every[1:2])
    assert both.resting == {("tier", 2), ("tier", 3)}
    both.incremental_unassign(every[2:3])
    assert both.resting == {("tier", 3)}
    both.unassign()
    assert not both.resting
    both.close()
