"""Followers: retry topics are read by whoever has the source's partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.model import CommitPosition
from ackfloor.kafka import topic_ids
from ackfloor.kafka.followers import Followers
from ackfloor.kafka.source import KafkaSource
from ackfloor.kafka.topic_ids import Described
from tests.framework.kafka.wire import (
    Listener,
    fresh,
    make_topic,
    options,
    produce,
    stored,
    until,
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


def test_what_follows_a_partition_comes_and_goes_with_it() -> None:
    """One of each retry topic; other topics are followed by nothing."""
    sources = {"r1": "orders", "r2": "orders", "other-r1": "other"}
    followers = Followers(sources, {"orders": 3, "r1": 3, "r2": 3, "other": 1, "other-r1": 1})
    assert places(followers.come(of(("orders", 1), ("quick-retries", 0)))) == [("r1", 1), ("r2", 1)]
    assert places(followers.come(of(("other", 0)))) == [("other-r1", 0)]
    assert places(followers.go(of(("orders", 1), ("quick-retries", 0)))) == [("r1", 1), ("r2", 1)]
    assert followers.go(of(("orders", 1))) == []
    assert followers.changed() == ([], [])
    assert places(followers.go(of(("other", 0)))) == [("other-r1", 0)]


@given(st.data(), st.integers(1, 12), st.integers(0, 30), st.integers(1, 4))
def test_each_partition_of_a_follower_has_one_reader(
    data: st.DataObject, source: int, tier: int, members: int
) -> None:
    """However the source is shared out, and also after both have grown."""
    shares = [data.draw(st.integers(0, members - 1)) for _ in range(source)]
    group = [
        Followers({"tier": "source"}, {"source": source, "tier": tier}) for _ in range(members)
    ]
    read: dict[int, list[Place]] = {}
    for number, member in enumerate(shares):
        read.setdefault(member, []).extend(places(group[member].come(of(("source", number)))))
    assert sorted(chain(*read.values())) == [("tier", n) for n in range(tier)]
    grown = source + data.draw(st.integers(0, 5)), tier + data.draw(st.integers(0, 9))
    for member in set(shares):
        more = group[member].learn(described({"source": grown[0], "tier": grown[1]}))
        assert ("tier" in more) == (grown[1] > tier)
        came, gone = map(places, group[member].changed())
        read[member] = sorted({*read[member], *came} - {*gone})
    for number in range(source, grown[0]):
        member = shares[0]
        read[member] += places(group[member].come(of(("source", number))))
    assert sorted(chain(*read.values())) == [("tier", n) for n in range(grown[1])]


def test_a_broker_that_tells_nothing_changes_nothing() -> None:
    """What was known at the start holds."""
    followers = Followers({"tier": "source"}, {"source": 2, "tier": 5})
    told = {"source": Described(), "tier": Described(), "stranger": Described("x", (0,))}
    assert followers.learn(told) == set()
    assert places(followers.come(of(("source", 0)))) == [("tier", 0), ("tier", 2), ("tier", 4)]
    assert followers.changed() == ([], [])


def test_where_the_source_is_not_known_yet_its_own_number_follows() -> None:
    """Whatever the count is, that one is nobody else's; the rest comes when it is told."""
    followers = Followers({"tier": "source"}, {"tier": 5})
    assert places(followers.come(of(("source", 0), ("source", 1)))) == [("tier", 0), ("tier", 1)]
    assert followers.come(of(("source", 7))) == []
    assert followers.learn(described({"source": 3})) == {"source"}
    assert list(map(places, followers.changed())) == [[("tier", 3), ("tier", 4)], []]


PROTOCOLS = {
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "eager": {"partition.assignment.strategy": "range"},
    "broker": {"group.protocol": "consumer"},
}
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
        given = options(self.servers).consumer
        if self.protocol == "broker":
            given = {"bootstrap.servers": self.servers}
        made = replace(options(self.servers), consumer={**given, **PROTOCOLS[self.protocol]})
        follows = {self.tier: self.topic}
        followers = Followers(follows, self.counts)
        source = KafkaSource(made, self.name, batch=100, unhurried=follows, followers=followers)
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
