"""KafkaSource on a real broker: how Kafka really behaves, and what is done about it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ackfloor.core.records.record import CommitPosition, Record
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.consume.committer import THROWN_OUT
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.groups.generation import fences_nothing
from tests.framework.kafka.wire import (
    Listener,
    commit,
    fresh,
    join,
    make_topic,
    options,
    produce,
    pump,
    stored,
    throw_out,
    until,
)

pytestmark = [pytest.mark.kafka]
BOTH_WAYS = pytest.mark.usefixtures("both_ways")


@BOTH_WAYS
def test_pause_and_resume_lose_and_repeat_nothing(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 5: a pause throws the prefetch away, the seek brings reading back to the next record."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 1_000)
    source = KafkaSource(options(bootstrap_servers), fresh("g"), batch=50)
    listener = Listener()
    source.subscribe([topic], listener)
    sources.append(source)
    cycles = 0
    while len(listener.records) < 1_000:
        before = len(listener.records)
        pump(source, lambda before=before: len(listener.records) > before)  # type: ignore[misc]
        source.pause([Partition(topic, 0)])
        while source.poll(0):
            pass
        source.resume([(Partition(topic, 0), listener.offsets[-1] + 1)])
        cycles += 1
    assert listener.offsets == list(range(1_000))
    assert cycles > 10


@BOTH_WAYS
def test_resume_reads_from_the_position_it_is_given(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 5: the engine knows what it has seen; where the client stands is not asked."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 20)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 20)
    source.pause([Partition(topic, 0), Partition("not-ours", 0)])
    source.resume([(Partition("not-ours", 0), 3), (Partition(topic, 0), 12)])
    pump(source, lambda: len(listener.records) == 28)
    assert listener.offsets[20:] == list(range(12, 20))


@BOTH_WAYS
def test_a_paused_partition_that_left_comes_back_running(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 5: pause state is set anew by every assignment."""
    topic, group = make_topic(bootstrap_servers, 2), fresh("g")
    produce(bootstrap_servers, topic, 5, 0)
    produce(bootstrap_servers, topic, 5, 1)
    first, seen = join(sources, bootstrap_servers, group, topic)
    pump(first, lambda: len(seen.records) == 10)
    first.pause([Partition(topic, 0), Partition(topic, 1)])
    second, other = join_beside(sources, bootstrap_servers, group, topic, first)
    pump(first, lambda: seen.revoked and other.starts)
    second.close()
    sources.remove(second)
    pump(first, lambda: len(seen.starts) >= 3)
    gone = seen.revoked[0].partition
    produce(bootstrap_servers, topic, 1, gone)
    before = len(seen.records)
    pump(first, lambda: any(r.partition() == gone for r in seen.records[before:]))
    assert seen.records[-1].partition() == gone


def join_beside(
    sources: list[KafkaSource], servers: str, group: str, topic: str, first: KafkaSource
) -> tuple[KafkaSource, Listener]:
    """A second member; both are polled until it has its share."""
    second = KafkaSource(options(servers), group)
    listener = Listener()
    second.subscribe([topic], listener)
    sources.append(second)

    def share() -> bool:
        first.poll(0.05)
        return bool(listener.starts)

    pump(second, share)
    return second, listener


@BOTH_WAYS
def test_trailing_aborted_records_are_passed(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 6: nothing is delivered for an aborted tail, yet the position gets past it."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 3)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(4):
        producer.produce(topic, b"never", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 3)
    pump(source, lambda: source.positions().get((topic, 0)) == 8)
    assert listener.offsets == [0, 1, 2]


@BOTH_WAYS
def test_markers_in_the_middle_are_holes(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Committed transactions leave a marker each; the offsets around it are what they are."""
    topic = make_topic(bootstrap_servers)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(60)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        producer.commit_transaction(60)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 3)
    assert listener.offsets == [0, 2, 4]
    pump(source, lambda: source.positions().get((topic, 0)) == 6)


@BOTH_WAYS
def test_a_commit_inside_the_revoke_is_stored_before_the_partition_leaves(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 8: the floor is committed in the callback; the next owner starts there."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 6)
    source, listener = join(sources, bootstrap_servers, group, topic)
    pump(source, lambda: len(listener.records) == 6)
    listener.on_revoke = lambda: commit(source, topic, 4) and None
    source.close()
    assert listener.revoked == [Partition(topic, 0)]
    assert stored(bootstrap_servers, group, topic).offset == 4


def test_an_async_commit_is_answered_by_a_later_poll(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """The answer names the position it belongs to."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic)
    wanted = CommitPosition(topic, 0, 3, "", 7)
    source.commit([wanted], wait=False)
    pump(source, lambda: listener.commits)
    assert listener.commits == [(wanted, None)]


def test_a_refused_commit_is_reported_and_never_raised(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Too much metadata is refused by the broker; the poll loop goes on."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 1)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    large = CommitPosition(topic, 0, 1, "x" * 5_000, 1)
    source.commit([large], wait=False)
    pump(source, lambda: listener.commits)
    assert "METADATA" in str(listener.commits[0][1])
    source.commit([large], wait=True)
    assert "refused" in str(listener.commits[1][1])
    commit(source, topic, 1)
    assert listener.commits[2][1] is None


@pytest.mark.parametrize("wait", [True, False])
def test_who_was_thrown_out_undoes_no_commit_of_a_later_owner(
    bootstrap_servers: str, sources: list[KafkaSource], wait: bool
) -> None:
    """All members were thrown out: a group without any takes positions from anybody."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    source, listener = join(
        sources, bootstrap_servers, group, topic, **{"heartbeat.interval.ms": 100}
    )
    throw_out(bootstrap_servers, group, source.membership())
    # The client knows it, and the owner thread does not yet: it is not polling.
    until(lambda: fences_nothing(source.membership()))
    later = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    later.commit(offsets=[TopicPartition(topic, 0, 9)], asynchronous=False)
    assert stored(bootstrap_servers, group, topic).offset == 9, "brokers refuse it now"
    source.commit([CommitPosition(topic, 0, 5, "af1", 1)], wait=wait)
    pump(source, lambda: listener.lost)
    assert stored(bootstrap_servers, group, topic).offset == 9
    assert [why for _, why in listener.commits] == [THROWN_OUT]


def test_a_failing_callback_fails_the_source(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 7: the exception is kept, the callback ends in order, and poll raises."""
    topic = make_topic(bootstrap_servers)
    source = KafkaSource(options(bootstrap_servers), fresh("g"))
    listener = Listener()

    def fail() -> None:
        raise RuntimeError("the listener broke")

    listener.on_assign = fail
    source.subscribe([topic], listener)
    sources.append(source)
    with pytest.raises(SourceFailed, match="the listener broke"):
        pump(source, lambda: False)


@BOTH_WAYS
def test_partitions_that_leave_deliver_nothing_after_the_callback(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 7: no record of a revoked partition is reported after its revoke."""
    topic, group = make_topic(bootstrap_servers, 4), fresh("g")
    for partition in range(4):
        produce(bootstrap_servers, topic, 2_000, partition)
    first = KafkaSource(options(bootstrap_servers), group, batch=100)
    seen = Listener()
    first.subscribe([topic], seen)
    sources.append(first)
    pump(first, lambda: seen.records)
    marks: list[int] = []
    seen.on_revoke = lambda: marks.append(len(seen.records))
    join_beside(sources, bootstrap_servers, group, topic, first)
    pump(first, lambda: marks)
    gone = {p.partition for p in seen.revoked}
    for _ in range(50):
        first.poll(0.02)
    assert gone
    assert not [r for r in seen.records[marks[-1] :] if r.partition() in gone]


def test_a_lone_record_does_not_wait_for_a_batch(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 11: the first record ends the wait; `consume(n, timeout)` would wait all of it."""
    topic = make_topic(bootstrap_servers)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    produce(bootstrap_servers, topic, 1)
    began_s = time.monotonic()
    while not listener.records:
        source.poll(120.0)
    assert time.monotonic() - began_s < 60.0
    assert listener.batches[0] == 1


def test_the_first_record_is_reported_before_more_are_asked_for(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 7 and 11: a rebalance inside the second call can't orphan the first record."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 100)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 100)
    assert listener.batches[0] == 1
    until(lambda: source.high_watermarks().get((topic, 0)) == 100 or source.poll(0.05) is None)


def read(error: KafkaError | None = None) -> Message:
    """What a batch holds: a record, or the error that ends its partition's epoch."""
    return Message(topic="orders", partition=0, offset=7, error=error)


def test_records_before_an_error_belong_to_the_epoch_it_ends() -> None:
    """A broker can't be made to put both into one batch, so the batch is given."""
    story: list[str] = []

    class Tells(Listener):
        def on_records(self, records: Sequence[Record]) -> None:
            story.append(f"{len(records)} records")

    class Partitions:
        def __contains__(self, partition: object) -> bool:
            return partition == ("orders", 0)

        def restart(self, topic: str, partition: int, wanted: int) -> None:
            story.append(f"restart {topic}/{partition} at {wanted}")

    source = KafkaSource(KafkaOptions(), "g")
    source._listener = Tells()
    source._membership = Partitions()  # type: ignore[assignment]
    gone = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    source._report([read(), read(gone), read()])
    assert story == ["2 records", "restart orders/0 at 7"]
