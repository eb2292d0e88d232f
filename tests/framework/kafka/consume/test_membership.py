"""Partitions come and go on a real broker: nothing is read that the listener was not told of."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ackfloor.core.records.record import CommitPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.consume import membership
from ackfloor.kafka.consume import source as source_module
from ackfloor.kafka.consume.source import KafkaSource
from tests.framework.kafka.wire import (
    PROTOCOLS,
    Listener,
    fresh,
    make_topic,
    options_of,
    produce,
    pump,
    until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("both_ways")]


def opened(
    sources: list[KafkaSource], servers: str, group: str, topic: str, protocol: str = "cooperative"
) -> tuple[KafkaSource, Listener]:
    """A source that is about to join."""
    source = KafkaSource(options_of(servers, protocol), group, batch=100)
    listener = Listener()
    source.subscribe([topic], listener)
    sources.append(source)
    return source, listener


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_gets_nothing_is_told_so(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """A spare worker, with more workers than partitions, is ready all the same."""
    topic, group = make_topic(bootstrap_servers, 1), fresh("g")
    members = [opened(sources, bootstrap_servers, group, topic, protocol) for _ in range(2)]
    told: set[int] = set()
    for n, (_, listener) in enumerate(members):
        listener.on_assign = lambda n=n: told.add(n)

    def both() -> bool:
        for source, _ in members:
            source.poll(0.05)
        return len(told) == 2

    until(both)
    assert told == {0, 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_joins_takes_over_where_the_revoke_committed(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """Rule 8, under every protocol: the commit in the callback is confirmed there, and seen."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    for partition in (0, 1):
        produce(bootstrap_servers, topic, 5, partition)
    first, seen = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(first, lambda: len(seen.records) == 10)

    def commit() -> None:
        leaving = [p for p in seen.revoked if p not in asked]
        asked.extend(leaving)
        first.commit([CommitPosition(*p, 3, "af1-x", 1) for p in leaving], wait=True)
        answered.append(len(seen.commits))

    asked: list[Partition] = []
    answered: list[int] = []
    seen.on_revoke = commit
    second, other = opened(sources, bootstrap_servers, group, topic, protocol)

    def shared() -> bool:
        first.poll(0.05)
        return bool(other.starts)

    pump(second, shared)
    assert answered[0] == len(seen.commits) > 0
    assert {why for _, why in seen.commits} == {None}
    assert {(s.position, s.metadata) for s in other.starts} == {(3, "af1-x")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_come_while_leaving_are_given_back_unread(
    bootstrap_servers: str, sources: list[KafkaSource], protocol: str
) -> None:
    """They are assigned inside the close, on its thread: nobody is told, and nothing waits."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    first, seen = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(first, lambda: len(seen.records) == 3)
    second, other = opened(sources, bootstrap_servers, group, topic, protocol)
    second.poll(0.5)
    first.close()
    # The partition is on its way to the second, which does not poll any more.
    time.sleep(1.0)
    began_s = time.monotonic()
    second.close()
    assert time.monotonic() - began_s < source_module.LEAVE_S
    assert (other.starts, other.records) == ([], [])
    third, read = opened(sources, bootstrap_servers, group, topic, protocol)
    pump(third, lambda: len(read.records) == 3)


def test_a_partition_that_can_not_be_resolved_is_not_read(
    bootstrap_servers: str, sources: list[KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 7: poll fails, nothing was reported, and the group goes on with the next member."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    # The client itself would start here, in place of the callback that failed.
    before = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    before.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    before.close()

    def away(*_: object) -> None:
        raise SourceFailed("the committed positions could not be read")

    with monkeypatch.context() as patched:
        patched.setattr(membership, "resolve", away)
        source, listener = opened(sources, bootstrap_servers, group, topic)
        with pytest.raises(SourceFailed, match="could not be read"):
            source.poll(60.0)
        with pytest.raises(SourceFailed, match="could not be read"):
            source.poll(1.0)
    source.close()
    assert (listener.starts, listener.records, listener.revoked) == ([], [], [])
    after, seen = opened(sources, bootstrap_servers, group, topic)
    pump(after, lambda: len(seen.records) == 3)


def test_under_the_eager_protocol_a_restart_moves_no_other_partition(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Eager assignments are made whole: the others keep their place, paused ones their pause."""
    topic, group = make_topic(bootstrap_servers, 3), fresh("g")
    produce(bootstrap_servers, topic, 10, 0)
    produce(bootstrap_servers, topic, 4, 1)
    source, listener = opened(sources, bootstrap_servers, group, topic, "eager")
    pump(source, lambda: len(listener.records) == 14)
    source.pause([Partition(topic, 0), Partition(topic, 1)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 8)]).values():
        future.result(60)
    source.resume([(Partition(topic, 0), 2)])
    pump(source, lambda: len(listener.records) == 16)
    produce(bootstrap_servers, topic, 1, 1)
    produce(bootstrap_servers, topic, 1, 2)
    pump(source, lambda: len(listener.records) == 17)
    assert [(r.partition(), r.offset()) for r in listener.records[14:]] == [(0, 8), (0, 9), (2, 0)]
    source.resume([(Partition(topic, 1), 4)])
    pump(source, lambda: len(listener.records) == 18)
    assert (listener.records[-1].partition(), listener.records[-1].offset()) == (1, 4)
