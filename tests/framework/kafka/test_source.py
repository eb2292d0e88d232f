"""KafkaSource on a real broker: how Kafka really behaves, and what is done about it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ackfloor.core.model import CommitPosition, Record
from ackfloor.core.model import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.options import KafkaOptions
from ackfloor.kafka.source import KafkaSource
from tests.framework.kafka.wire import (
    Listener,
    fresh,
    make_topic,
    options,
    produce,
    pump,
    stored,
    until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def sources() -> Iterator[list[KafkaSource]]:
    """Sources to close when the test is over."""
    opened: list[KafkaSource] = []
    yield opened
    for source in opened:
        source.close()


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


def test_a_new_group_starts_at_the_first_record(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Without a commit, `earliest` reads everything, and says that nothing was committed."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 5)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 5)
    assert listener.starts[0].position == 0
    assert listener.starts[0].committed is False
    assert listener.offsets == [0, 1, 2, 3, 4]


def test_a_latest_group_names_its_start_so_that_it_can_be_committed_at_once(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: an idle `latest` group that committed its start misses nothing that came later."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic, "latest")
    assert (listener.starts[0].position, listener.starts[0].committed) == (3, False)
    commit(source, topic, listener.starts[0].position)
    source.close()
    produce(bootstrap_servers, topic, 2)
    again, seen = join(sources, bootstrap_servers, group, topic, "latest")
    assert (seen.starts[0].position, seen.starts[0].committed) == (3, True)
    pump(again, lambda: len(seen.records) == 2)
    assert seen.offsets == [3, 4]


def test_metadata_comes_back_with_the_position(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rules 1 and 4: a commit carries metadata; the next assignment gets both in one reply."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    source, listener = join(sources, bootstrap_servers, group, topic)
    wanted = commit(source, topic, 2, "af1-something")
    assert listener.commits == [(wanted, None)]
    source.close()
    assert stored(bootstrap_servers, group, topic).metadata == "af1-something"
    _, seen = join(sources, bootstrap_servers, group, topic)
    assert (seen.starts[0].position, seen.starts[0].metadata) == (2, "af1-something")


def test_a_start_below_the_log_goes_on_at_its_start_and_counts_the_lost(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: what retention removed before it was read is counted, and blocks nothing."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 10)
    source, _ = join(sources, bootstrap_servers, group, topic)
    commit(source, topic, 2)
    source.close()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        future.result(10)
    again, seen = join(sources, bootstrap_servers, group, topic)
    assert (seen.starts[0].position, seen.starts[0].lost) == (7, 5)
    pump(again, lambda: len(seen.records) == 3)
    assert seen.offsets == [7, 8, 9]


def test_a_start_beyond_the_log_begins_at_what_is_there(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: a topic that was created anew is read from its start: late rather than lost."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 2)
    source, _ = join(sources, bootstrap_servers, group, topic)
    commit(source, topic, 500)
    source.close()
    again, seen = join(sources, bootstrap_servers, group, topic)
    pump(again, lambda: len(seen.records) == 2)
    assert seen.revoked == [Partition(topic, 0)]
    assert (seen.starts[-1].position, seen.starts[-1].committed) == (0, False)
    assert seen.offsets == [0, 1]


def test_a_start_inside_an_open_transaction_is_not_beyond_the_log(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 4: the end of what may be read yet is not the log's end; nothing is read again."""
    topic, group = make_topic(bootstrap_servers), fresh("g")
    produce(bootstrap_servers, topic, 3)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(4):
        producer.produce(topic, b"open", partition=0)
    assert producer.flush(10) == 0
    # As a client of this group that reads uncommitted records would have left it.
    before = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    before.commit(offsets=[TopicPartition(topic, 0, 6)], asynchronous=False)
    before.close()
    source, listener = join(sources, bootstrap_servers, group, topic)
    assert (listener.starts[0].position, listener.starts[0].committed) == (6, True)
    producer.commit_transaction(20)
    pump(source, lambda: listener.records)
    assert (listener.offsets, len(listener.starts)) == ([6], 1)


def test_records_that_retention_takes_while_running_restart_the_partition(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """A position that falls out of the log while running is a new epoch, loudly, not a stall."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 20)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 20)
    source.pause([Partition(topic, 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result(10)
    source.resume([(Partition(topic, 0), 5)])
    pump(source, lambda: len(listener.starts) == 2)
    # What still runs may end first: it won't come again.
    assert (listener.revoked, listener.lost) == ([Partition(topic, 0)], [])
    assert listener.starts[-1].position == 15
    assert listener.starts[-1].lost == 10
    assert listener.starts[-1].committed is False
    pump(
        source, lambda: listener.offsets[-5:] == [15, 16, 17, 18, 19] and len(listener.starts) == 2
    )


def test_pause_and_resume_lose_and_repeat_nothing(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 5: a pause throws the prefetch away, the seek brings reading back to the next record."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 3_000)
    source = KafkaSource(options(bootstrap_servers), fresh("g"), batch=50)
    listener = Listener()
    source.subscribe([topic], listener)
    sources.append(source)
    cycles = 0
    while len(listener.records) < 3_000:
        before = len(listener.records)
        pump(source, lambda before=before: len(listener.records) > before)  # type: ignore[misc]
        source.pause([Partition(topic, 0)])
        while source.poll(0):
            pass
        source.resume([(Partition(topic, 0), listener.offsets[-1] + 1)])
        cycles += 1
    assert listener.offsets == list(range(3_000))
    assert cycles > 10


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


def test_trailing_aborted_records_are_passed(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Rule 6: nothing is delivered for an aborted tail, yet the position gets past it."""
    topic = make_topic(bootstrap_servers)
    produce(bootstrap_servers, topic, 3)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(4):
        producer.produce(topic, b"never", partition=0)
    producer.flush(10)
    producer.abort_transaction(20)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 3)
    pump(source, lambda: source.positions().get((topic, 0)) == 8)
    assert listener.offsets == [0, 1, 2]


def test_markers_in_the_middle_are_holes(
    bootstrap_servers: str, sources: list[KafkaSource]
) -> None:
    """Committed transactions leave a marker each; the offsets around it are what they are."""
    topic = make_topic(bootstrap_servers)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": fresh("t"), "linger.ms": 0}
    )
    producer.init_transactions(20)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"v", partition=0)
        producer.commit_transaction(20)
    source, listener = join(sources, bootstrap_servers, fresh("g"), topic)
    pump(source, lambda: len(listener.records) == 3)
    assert listener.offsets == [0, 2, 4]
    pump(source, lambda: source.positions().get((topic, 0)) == 6)


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
        source.poll(20.0)
    assert time.monotonic() - began_s < 15.0
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


class _Read:
    """What a batch holds: a record, or the error that ends its partition's epoch."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


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
    source._report([_Read(None), _Read(gone), _Read(None)])  # type: ignore[list-item]
    assert story == ["2 records", "restart orders/0 at 7"]
