"""CopartitionedRetryTopics: retry topics are read by whoever has the source's partition."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.record import CommitPosition
from ackfloor.kafka.consume import start_positions
from ackfloor.kafka.consume.copartitioned_retry_topics import Changes, CopartitionedRetryTopics
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.start_positions import PATIENCE_S
from ackfloor.kafka.topics import topic_ids
from ackfloor.kafka.topics.topic_ids import Described
from tests.framework.kafka.wire import (
    PROTOCOLS,
    Listener,
    fresh,
    make_topic,
    options_of,
    produce,
    stored,
    until,
    untold,
)

Place = tuple[str, int]


def of(*places: Place) -> list[TopicPartition]:
    """Places as the client has them."""
    return [TopicPartition(*place) for place in places]


def places(partitions: list[TopicPartition]) -> list[Place]:
    """What the client has as places."""
    return [(p.topic, p.partition) for p in partitions]


def described(counts: Mapping[str, int]) -> dict[str, Described]:
    """As the broker tells of topics."""
    return {topic: Described("id", tuple(range(count))) for topic, count in counts.items()}


def told(changes: Changes) -> list[list[Place]]:
    """What came, and what went."""
    return [places(changes.came), places(changes.gone)]


def test_what_follows_a_partition_comes_and_goes_with_it() -> None:
    """One of each retry topic; other topics are followed by nothing."""
    sources = {"r1": "orders", "r2": "orders", "other-r1": "other"}
    copartitioned = CopartitionedRetryTopics(
        sources, {"orders": 3, "r1": 3, "r2": 3, "other": 1, "other-r1": 1}
    )
    here = of(("orders", 1), ("quick-retries", 0))
    assert told(copartitioned.come(here)) == [[("r1", 1), ("r2", 1)], []]
    assert told(copartitioned.come(of(("other", 0)))) == [[("other-r1", 0)], []]
    assert places(copartitioned.go(here)) == [("r1", 1), ("r2", 1)]
    assert copartitioned.go(of(("orders", 1))) == []
    assert told(copartitioned.changed()) == [[], []]
    assert places(copartitioned.go(of(("other", 0)))) == [("other-r1", 0)]


@given(st.data(), st.integers(1, 12), st.integers(0, 30), st.integers(1, 4))
def test_each_partition_of_a_follower_has_one_reader(
    data: st.DataObject, source: int, tier: int, members: int
) -> None:
    """However the source is shared out, and also after both have grown."""
    shares = [data.draw(st.integers(0, members - 1)) for _ in range(source)]
    counts = {"source": source, "tier": tier}
    group = [CopartitionedRetryTopics({"tier": "source"}, counts) for _ in range(members)]
    read: dict[int, set[Place]] = {member: set() for member in range(members)}

    def note(member: int, changes: Changes) -> None:
        came, gone = map(set, told(changes))
        assert not came & read[member], "read already"
        assert gone <= read[member], "not read"
        read[member] = (read[member] | came) - gone

    def each_has_one_reader(count: int) -> None:
        assert sorted(chain(*read.values())) == [("tier", n) for n in range(count)]

    for number, member in enumerate(shares):
        note(member, group[member].come(of(("source", number))))
    each_has_one_reader(tier)
    grown = {"source": source + data.draw(st.integers(0, 5))}
    grown["tier"] = tier + data.draw(st.integers(0, 9))
    for copartitioned in group:
        assert ("tier" in copartitioned.learn(described(grown))) == (grown["tier"] > tier)
    for number in range(source, grown["source"]):
        member = data.draw(st.integers(0, members - 1))
        shares.append(member)
        note(member, group[member].come(of(("source", number))))
    for member, copartitioned in enumerate(group):
        note(member, copartitioned.changed())
    each_has_one_reader(grown["tier"])
    for number, member in enumerate(shares):
        read[member] -= set(places(group[member].go(of(("source", number)))))
    assert not any(read.values())


def test_a_broker_that_tells_nothing_changes_nothing() -> None:
    """What was known at the start holds."""
    copartitioned = CopartitionedRetryTopics({"tier": "source"}, {"source": 2, "tier": 5})
    silent = {"source": Described(), "tier": Described(), "stranger": Described("x", (0,))}
    assert copartitioned.learn(silent) == set()
    came, _ = told(copartitioned.come(of(("source", 0))))
    assert came == [("tier", 0), ("tier", 2), ("tier", 4)]
    assert told(copartitioned.changed()) == [[], []]


def test_where_the_source_is_not_known_yet_its_own_number_follows() -> None:
    """Whatever the count is, that one is nobody else's; the rest comes when it is told."""
    copartitioned = CopartitionedRetryTopics({"tier": "source"}, {"tier": 5})
    came, _ = told(copartitioned.come(of(("source", 0), ("source", 1))))
    assert came == [("tier", 0), ("tier", 1)]
    assert told(copartitioned.come(of(("source", 7)))) == [[], []]
    assert copartitioned.learn(described({"source": 3})) == {"source"}
    assert told(copartitioned.changed()) == [[("tier", 3), ("tier", 4)], []]


def test_a_follower_that_is_deleted_is_read_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second word: the first may be a broker that has not heard of it. It may come back."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.0)
    copartitioned = CopartitionedRetryTopics({"tier": "source"}, {"source": 1, "tier": 1})
    copartitioned.come(of(("source", 0)))
    absent = {"tier": Described(absent=True)}
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 60.0)
    for answer in (absent, absent, described({"tier": 1}), absent):
        copartitioned.learn(answer)
        assert told(copartitioned.changed()) == [[], []], "too soon, or it was there in between"
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.0)
    copartitioned.learn(described({"source": 1}))
    assert told(copartitioned.changed()) == [[], []], "nothing was said of it"
    copartitioned.learn(absent)
    assert told(copartitioned.changed()) == [[], [("tier", 0)]]
    assert copartitioned.go(of(("source", 0))) == []
    assert told(copartitioned.come(of(("source", 0)))) == [[], []]
    assert copartitioned.learn(described({"tier": 1})) == {"tier"}
    assert told(copartitioned.changed()) == [[("tier", 0)], []]


def test_what_the_broker_does_not_know_is_not_begun() -> None:
    """At the first word: who looks for its log would wait inside the callback."""
    copartitioned = CopartitionedRetryTopics({"tier": "source"}, {"source": 2, "tier": 2})
    copartitioned.come(of(("source", 0)))
    copartitioned.learn({"tier": Described(absent=True)})
    assert told(copartitioned.come(of(("source", 1)))) == [[], []]
    assert places(copartitioned.go(of(("source", 0)))) == [("tier", 0)]
    copartitioned.learn(described({"tier": 2}))
    assert told(copartitioned.changed()) == [[("tier", 1)], []]


class Silent:
    """A client whose broker does not answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_watermark_offsets(self, partition: TopicPartition, **_: object) -> None:
        self.asked.append(partition.topic)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_many_logs_that_nobody_tells_of_take_no_longer_than_one() -> None:
    """They are left out, with the reason, also those that are not asked for any more."""
    silent, told = Silent(), {"tier": Described("id")}
    client, why = cast("Consumer", silent), list[Exception]()
    many = [TopicPartition("tier", number, -1001) for number in range(100)]
    starts = start_positions.resolve(
        client, many, "earliest", told, untold, left_out=why.append, within_s=0.0
    )
    assert starts == []
    assert silent.asked == ["tier"]
    assert [f"{each}".startswith(f"the log range of tier/{n} ") for n, each in enumerate(why)] == (
        [True] * 100
    )


EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)


class Group:
    """The members of a group that read a topic, and its tier with it."""

    def __init__(self, servers: str, protocol: str, source: int, tier: int) -> None:
        self.servers, self.protocol = servers, protocol
        self.topic, self.tier = make_topic(servers, source), make_topic(servers, tier)
        self.name = fresh("g")
        self.counts = {self.topic: source, self.tier: tier}
        self.members: list[tuple[KafkaSource, Listener]] = []
        self.listeners: list[Listener] = []

    def join(self) -> tuple[KafkaSource, Listener]:
        """One more member."""
        made = options_of(self.servers, self.protocol)
        follows = {self.tier: self.topic}
        copartitioned = CopartitionedRetryTopics(follows, self.counts)
        source = KafkaSource(
            made, self.name, batch=100, low_priority_topics=follows, copartitioned=copartitioned
        )
        listener = Listener()
        source.subscribe([self.topic, self.tier], listener)
        self.members.append((source, listener))
        self.listeners.append(listener)
        return source, listener

    def leave(self, source: KafkaSource) -> None:
        """A member leaves."""
        self.members = [member for member in self.members if member[0] is not source]
        source.close()

    def poll(self) -> None:
        """One turn of everybody."""
        for source, _ in self.members:
            source.poll(0.02)

    def pump(self, done: Callable[[], object]) -> None:
        """Turn everybody until a condition holds."""
        until(lambda: self.poll() or done())  # type: ignore[func-returns-value]

    def shares(self, topic: str) -> list[list[int]]:
        """Which partitions each member has."""
        return [
            sorted(p.partition for p in source._membership.partitions() if p.topic == topic)
            for source, _ in self.members
        ]

    def shared(self, *shares: list[int]) -> bool:
        """Whether the members have these shares of the source, in any order."""
        return sorted(self.shares(self.topic)) == sorted(shares)

    def followed(self, tier: int, source: int) -> list[list[int]]:
        """Which partitions of the tier each member has to read, by what it has of the source."""
        shares = self.shares(self.topic)
        return [[n for n in range(tier) if n % source in share] for share in shares]

    def grow(self, topic: str, count: int) -> None:
        """Add partitions."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)

    def delete(self, topic: str) -> None:
        """Delete a topic. Not in the test's frame: a client that outlives it in a cycle may be
        collected inside another one's callback, which aborts the process.
        """
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_topics([topic])[topic].result(60)

    def write(self, topic: str, partitions: int) -> None:
        """A record for each partition."""
        for number in range(partitions):
            produce(self.servers, topic, 1, number)

    def read(self, topic: str) -> Counter[tuple[int, int]]:
        """What anybody has read, and how often."""
        found = (record for listener in self.listeners for record in listener.records)
        return Counter((r.partition(), r.offset()) for r in found if r.topic() == topic)


@pytest.fixture
def groups(bootstrap_servers: str) -> Iterator[Callable[..., Group]]:
    """Makes groups whose members leave when the test is over."""
    made: list[Group] = []

    def make(protocol: str, source: int, tier: int) -> Group:
        made.append(Group(bootstrap_servers, protocol, source, tier))
        return made[-1]

    yield make
    for group in made:
        for source, _ in group.members:
            source.close()


@pytest.mark.kafka
@EVERY_PROTOCOL
def test_who_joins_takes_the_followers_with_its_share(
    groups: Callable[..., Group], protocol: str
) -> None:
    """The group shares out the source alone; it has commits of both, and the next goes on there."""
    group = groups(protocol, 2, 5)
    first, _ = group.join()
    group.pump(lambda: group.shared([0, 1]))
    assert group.shares(group.tier) == [[0, 1, 2, 3, 4]]
    second, _ = group.join()
    group.pump(lambda: group.shared([0], [1]))
    assert sorted(group.shares(group.tier)) == [[0, 2, 4], [1, 3]]
    group.write(group.tier, 5)
    group.pump(lambda: sum(group.read(group.tier).values()) >= 5)
    assert group.read(group.tier) == Counter((number, 0) for number in range(5))
    for source, listener in group.members:
        for partition in source._membership.partitions():
            if partition.topic == group.tier:
                position = CommitPosition(group.tier, partition.partition, 1, "", 1)
                source.commit([position], wait=True)
        assert {error for _, error in listener.commits} == {None}
    group.leave(second)
    group.pump(lambda: group.shared([0, 1]))
    assert group.shares(group.tier) == [[0, 1, 2, 3, 4]]
    for number in range(5):
        assert stored(group.servers, group.name, group.tier, number).offset == 1
    group.write(group.tier, 5)
    group.pump(lambda: sum(group.read(group.tier).values()) >= 10)
    assert group.read(group.tier) == Counter((number, at) for number in range(5) for at in (0, 1))
    assert first._membership.failure is None


@pytest.mark.kafka
@EVERY_PROTOCOL
def test_partitions_that_are_added_are_read_once(
    groups: Callable[..., Group], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First a tier has more than its source, then the source has more as well."""
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.1)
    group = groups(protocol, 2, 2)
    group.join()
    group.join()
    group.pump(lambda: group.shared([0], [1]))
    group.write(group.tier, 2)
    group.grow(group.tier, 5)
    group.pump(lambda: sorted(group.shares(group.tier)) == [[0, 2, 4], [1, 3]])
    group.write(group.tier, 5)
    group.pump(lambda: sum(group.read(group.tier).values()) >= 7)
    group.grow(group.topic, 4)
    # Until the group has shared out the new ones, what follows them waits, and is read by nobody.
    group.pump(lambda: group.shares(group.tier) == group.followed(5, 4))
    group.counts = {group.topic: 4, group.tier: 5}
    third, _ = group.join()
    group.pump(lambda: sum(map(len, group.shares(group.topic))) == 4)
    group.pump(lambda: sorted(chain(*group.shares(group.tier))) == [0, 1, 2, 3, 4])
    group.write(group.tier, 5)
    every = {*((number, 0) for number in range(5)), *((number, 1) for number in range(5))}
    group.pump(lambda: every <= group.read(group.tier).keys())
    assert third._membership.failure is None


@pytest.mark.kafka
def test_a_follower_of_a_partition_that_is_lost_is_lost_with_it(
    groups: Callable[..., Group],
) -> None:
    """Nothing is committed for it, and it is read no more."""
    group = groups("cooperative", 1, 1)
    source, listener = group.join()
    group.pump(lambda: listener.starts)
    source._membership._lost(of((group.topic, 0)))
    assert sorted(listener.lost) == sorted([(group.topic, 0), (group.tier, 0)])
    assert listener.revoked == []
    assert source._membership.partitions() == []


@pytest.mark.kafka
@EVERY_PROTOCOL
@pytest.mark.parametrize("seen", [False, True])
def test_a_deleted_follower_holds_nobody_up(
    groups: Callable[..., Group], protocol: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes over its source's partition does not look for it; in the end nobody reads it."""
    if seen:
        monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.1)
    group = groups(protocol, 2, 2)
    group.join()
    second, _ = group.join()
    group.pump(lambda: group.shared([0], [1]))
    group.delete(group.tier)
    if seen:
        group.pump(lambda: group.shares(group.tier) == [[], []])
    group.leave(second)
    began_s = time.monotonic()
    group.pump(lambda: group.shared([0, 1]))
    assert time.monotonic() - began_s < PATIENCE_S, "it was looked for"
    assert len(*group.shares(group.tier)) < 2, "it was begun"
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.1)
    group.write(group.topic, 2)
    group.pump(lambda: sum(group.read(group.topic).values()) == 2)
    group.pump(lambda: group.shares(group.tier) == [[]])


@pytest.mark.kafka
@EVERY_PROTOCOL
def test_what_can_not_be_begun_holds_nobody_up_and_is_tried_again(
    groups: Callable[..., Group],
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker names partitions, and does not know their logs. It is told, and that it is over."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(topic_ids, "LOOK_EVERY_S", 0.5)
    group = groups(protocol, 1, 1)
    group.counts[group.tier] = 3
    group.write(group.topic, 1)
    source, listener = group.join()
    group.pump(lambda: group.read(group.topic) and group.shares(group.tier) == [[0]])
    group.grow(group.tier, 3)
    group.write(group.tier, 3)
    group.pump(lambda: group.read(group.tier) == Counter((number, 0) for number in range(3)))
    assert group.shares(group.tier) == [[0, 1, 2]]
    assert (source._membership.failure, listener.revoked, listener.lost) == (None, [], [])
    told, over = [
        r.getMessage() for r in caplog.records if re.search(r"\b(not|now) read", r.getMessage())
    ]
    missing = f"not read for now, and asked for again: {group.tier}: 1-2 (the log range of "
    assert told.startswith(missing)
    assert re.fullmatch(rf"now read, after \d+ s: {group.tier}: 1-2", over)


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["cooperative", "broker"])
def test_a_source_that_grows_below_its_tier_gets_its_share_back(
    groups: Callable[..., Group], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new partitions come before anybody has looked: theirs are read already."""
    quick = {"topic.metadata.refresh.interval.ms": "500"}
    monkeypatch.setitem(PROTOCOLS, protocol, {**PROTOCOLS[protocol], **quick})
    group = groups(protocol, 2, 4)
    source, _ = group.join()
    group.pump(lambda: group.shared([0, 1]))
    assert group.shares(group.tier) == [[0, 1, 2, 3]]
    group.grow(group.topic, 4)
    group.pump(lambda: group.shared([0, 1, 2, 3]))
    assert group.shares(group.tier) == [[0, 1, 2, 3]]
    assert source._membership.failure is None
    group.write(group.tier, 4)
    group.pump(lambda: sum(group.read(group.tier).values()) == 4)
