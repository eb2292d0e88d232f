"""A dead worker's open transaction: its partitions wait, and nothing else of their next owner."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ackfloor.core.records.record import StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.consume import late_starts, membership
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.late_starts import LateStarts
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.start_positions import resolve
from tests.framework.kafka.consume.test_membership import opened
from tests.framework.kafka.wire import (
    PROTOCOLS,
    Listener,
    fresh,
    make_topic,
    options,
    produce,
    pump,
)


def left_open(servers: str, group: str, topic: str) -> Callable[[], None]:
    """A transaction that commits position 2 of partition 0; returns what ends it unfinished."""
    config = {
        "bootstrap.servers": servers,
        "transactional.id": fresh("slot"),
        "transaction.timeout.ms": 60_000,
    }
    killed, anybody = Producer(config), Consumer({"bootstrap.servers": servers, "group.id": group})
    killed.init_transactions(60)
    killed.begin_transaction()
    offsets = [TopicPartition(topic, 0, 2)]
    killed.send_offsets_to_transaction(offsets, anybody.consumer_group_metadata(), 20)
    anybody.close()

    def end() -> None:
        Producer(config).init_transactions(60)
        # It is not called again before this.
        assert killed is not None

    return end


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_other_partitions_are_read_meanwhile(
    bootstrap_servers: str,
    sources: list[KafkaSource],
    protocol: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The poll goes on, and when the group knows again the partition begins where it was left."""
    caplog.set_level(logging.INFO)
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    for partition in (0, 1):
        produce(bootstrap_servers, topic, 3, partition)
    end = left_open(bootstrap_servers, group, topic)
    source, listener = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(source, lambda: len(listener.records) == 3)
    took_s: list[float] = []
    for _ in range(9):
        began_s = time.monotonic()
        source.poll(0.1)
        took_s.append(time.monotonic() - began_s)
    assert median(took_s) < late_starts.TOGETHER_S
    assert {record.partition() for record in listener.records} == {1}
    # The client is told to leave it alone, and the engine does not know of it.
    source.pause([Partition(topic, 0)])
    source.resume([(Partition(topic, 0), 0)])
    assert (topic, 0) not in source.positions()
    end()
    pump(source, lambda: len(listener.records) == 6)
    assert [(s.partition, s.position) for s in listener.starts] == [(1, 0), (0, 0)]
    assert sorted(r.offset() for r in listener.records if r.partition() == 0) == [0, 1, 2]
    told, over = [
        r.getMessage() for r in caplog.records if re.search(r"\b(not|now) read", r.getMessage())
    ]
    assert told.startswith(f"not read for now, and asked for again: {topic}: 0 (the group does not")
    assert over.startswith("now read, after ")
    assert over.endswith(f" s: {topic}: 0")


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_may_leave_before_it_has_begun(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """Nobody is told of it then; its next owner asks for itself."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    produce(bootstrap_servers, topic, 3, 0)
    end = left_open(bootstrap_servers, group, topic)
    first, seen = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(first, lambda: seen.starts)
    first.close()
    assert [(s.partition) for s in seen.starts] == [1]
    assert seen.revoked == [Partition(topic, 1)]
    end()
    second, other = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(second, lambda: len(other.records) == 3)


class Group:
    """What it has committed; an error where it does not say."""

    def __init__(self, *silent: int) -> None:
        self.silent = set(silent)
        self.asked: list[list[int]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed."""
        asked = [p.partition for p in partitions]
        self.asked.append(asked)
        if self.silent & set(asked):
            raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))
        return [TopicPartition(p.topic, p.partition, 7) for p in partitions]


def late(group: Any, count: int = 3) -> tuple[LateStarts, list[int]]:
    """So many partitions have come; which of them begin at once."""
    starts = LateStarts(group)
    found = starts.ask([TopicPartition("orders", n) for n in range(count)])
    return starts, [p.partition for p in found]


def test_only_those_wait_that_the_group_is_silent_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for in turn, one at a time, and each begins once."""
    monkeypatch.setattr(late_starts, "AGAIN_S", 0.0)
    group = Group(0, 2)
    starts, at_once = late(group)
    assert at_once == [1]
    assert [p.partition for p in starts.partitions()] == [0, 2]
    assert [starts.next() for _ in range(3)] == [[]] * 3
    assert group.asked[-6:] == [[0, 2], [0], [2, 0], [2], [0, 2], [0]]
    group.silent.discard(2)
    [found] = starts.next()
    assert (found.partition, found.offset) == (2, 7)
    starts.forget([TopicPartition("orders", 0), TopicPartition("orders", 9)])
    assert not starts
    assert starts.next() == []


def test_a_group_that_was_away_tells_of_all_at_once() -> None:
    """Not of one after the other: there may be hundreds."""
    group = Group(0, 1, 2)
    starts, at_once = late(group)
    assert at_once == []
    group.silent.clear()
    assert [p.partition for p in starts.next()] == [0, 1, 2]
    assert not starts


def test_two_questions_have_a_pause_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take a quarter of a second, in which nothing else goes on."""
    monkeypatch.setattr(late_starts, "AGAIN_S", 3600.0)
    group = Group(0)
    starts, _ = late(group)
    asked = len(group.asked)
    assert [starts.next() for _ in range(5)] == [[]] * 5
    assert len(group.asked) == asked + 1


def test_the_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts afresh is better than a partition that waits for ever."""
    monkeypatch.setattr(late_starts, "PATIENCE_S", 0.0)
    starts, _ = late(Group(0))
    with pytest.raises(SourceFailed, match="orders/0 could not be read in time: UNSTABLE"):
        starts.next()


@pytest.mark.kafka
def test_a_member_that_stood_still_begins_with_what_is_committed_by_now(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the group's answer and the first record another member may have gone on for long."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 5)
    before = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    before.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    before.close()
    monkeypatch.setattr(membership, "FRESH_S", 0.3)
    starts: list[int] = []

    def slowly(*given: Any) -> list[StartPosition]:
        resolved = resolve(*given)
        starts.append(resolved[0].position)
        if len(starts) == 1:
            # Meanwhile the other one goes on.
            monkeypatch.setattr(LateStarts, "_committed", lambda *_: [TopicPartition(topic, 0, 4)])
            time.sleep(0.4)
        else:
            monkeypatch.setattr(membership, "FRESH_S", 60.0)
        return resolved

    monkeypatch.setattr(membership, "resolve", slowly)
    source, listener = opened(sources, bootstrap_servers, group, topic)
    pump(source, lambda: listener.records)
    assert starts == [1, 4]
    assert listener.offsets == [4]


class Tiers(Group):
    """Tells nothing of some topics and partitions."""

    def __init__(self, *silent: tuple[str, int]) -> None:
        super().__init__()
        self.places = set(silent)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed."""
        if self.places & {(p.topic, p.partition) for p in partitions}:
            raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))
        return super().committed(partitions, timeout)


def places(partitions: list[TopicPartition]) -> list[tuple[str, int]]:
    """As plain pairs."""
    return [(p.topic, p.partition) for p in partitions]


def test_a_source_waits_for_its_quarantined_retry_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own position is known, and not what is parked: it begins after them, or with them."""
    monkeypatch.setattr(late_starts, "AGAIN_S", 0.0)
    group = Tiers(("tier", 1), ("orders", 2))
    starts = LateStarts(group, {"tier": "orders", "other-tier": "other"})  # type: ignore[arg-type]
    names = ("orders", "tier", "other")
    found = starts.ask([TopicPartition(topic, n) for topic in names for n in (1, 2)])
    assert places(found) == [("tier", 2), ("other", 1), ("other", 2)]
    assert sorted(places(starts.partitions())) == [("orders", 1), ("orders", 2), ("tier", 1)]
    assert [starts.next() for _ in range(4)] == [[]] * 4
    group.places.discard(("tier", 1))
    begun = [places(starts.next()) for _ in range(4)]
    assert [some for some in begun if some] == [[("tier", 1)], [("orders", 1)]]
    group.places.clear()
    assert places(starts.next()) == [("orders", 2)]
    assert not starts


def test_a_source_does_not_wait_for_a_retry_topic_that_is_gone() -> None:
    """It was deleted, or is read by another member."""
    group = Tiers(("tier", 0))
    starts = LateStarts(group, {"tier": "orders"})  # type: ignore[arg-type]
    assert starts.ask([TopicPartition("orders", 0), TopicPartition("tier", 0)]) == []
    starts.forget([TopicPartition("tier", 0)])
    assert places(starts.next()) == [("orders", 0)]


def test_what_is_hindered_waits_as_long_as_it_takes_and_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group would tell a position that is about to change; and it is not the group's fault."""
    monkeypatch.setattr(late_starts, "HINDERED_S", 0.0)
    monkeypatch.setattr(late_starts, "PATIENCE_S", 0.0)
    hindered, group = {0: "not yet"}, Group()
    starts = LateStarts(group, None, lambda _, n: hindered.get(n, ""))  # type: ignore[arg-type]
    found = starts.ask([TopicPartition("orders", n) for n in (0, 1)])
    assert [p.partition for p in found] == [1]
    assert [starts.next() for _ in range(3)] == [[]] * 3
    assert group.asked == [[1]]
    assert starts.why == "not yet"
    hindered.clear()
    assert [p.partition for p in starts.next()] == [0]
    assert not starts


def test_a_source_waits_for_a_retry_topic_that_is_hindered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is parked there changes with it. They begin together."""
    monkeypatch.setattr(late_starts, "HINDERED_S", 0.0)
    hindered, group = {"tier"}, Group()
    starts = LateStarts(
        group,  # type: ignore[arg-type]
        {"tier": "orders"},
        lambda topic, _: "not yet" if topic in hindered else "",
    )
    both = [TopicPartition("orders", 0), TopicPartition("tier", 0)]
    assert starts.ask(both) == []
    assert [starts.next() for _ in range(3)] == [[]] * 3
    assert group.asked == []
    hindered.clear()
    assert sorted(places(starts.next())) == [("orders", 0), ("tier", 0)]


@pytest.mark.kafka
def test_a_source_is_not_read_before_what_is_parked_is_known(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The dead worker's transaction has a commit of the retry topic in it, none of the source."""
    topic, tier = make_topic(bootstrap_servers, 2), make_topic(bootstrap_servers, 2)
    group = fresh("g")
    for each in (topic, tier):
        for partition in (0, 1):
            produce(bootstrap_servers, each, 3, partition)
    end = left_open(bootstrap_servers, group, tier)
    source = KafkaSource(
        options(bootstrap_servers),
        group,
        low_priority_topics=[tier],
        copartitioned=CopartitionedRetryTopics({tier: topic}, {topic: 2, tier: 2}),
        quarantined_topics={tier: topic},
    )
    listener, announced = Listener(), list[int]()
    listener.on_assign = lambda: announced.append(len(listener.starts))
    source.subscribe([topic, tier], listener)
    sources.append(source)
    pump(source, lambda: len(listener.records) == 6)
    for _ in range(5):
        source.poll(0.1)
    assert {(s.topic, s.partition) for s in listener.starts} == {(topic, 1), (tier, 1)}
    end()
    pump(source, lambda: len(listener.records) == 12)
    begun = [(s.topic, s.partition) for s in listener.starts]
    assert sorted(begun[2:]) == sorted([(topic, 0), (tier, 0)])
    first = min(count for count in announced if (topic, 0) in begun[:count])
    assert (tier, 0) in begun[:first]
