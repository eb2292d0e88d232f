"""MemoryBroker: the log, the groups and the faults that a test can ask for.

What it shares with Kafka is in tests/contracts; here is what only the broker in memory can do.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from zlib import crc32

import pytest

from ackfloor.core.records.record import CommitPosition, Record, StartPosition, TopicPartition
from ackfloor.errors import PublishFailed, SourceFailed
from ackfloor.testing import ManualClock, MemoryBroker, MemorySource
from ackfloor.testing.memory.memory_broker import LONGEST_METADATA, MemoryPublisher, TooLarge


class Listener:
    """Notes what a source reports; may act inside `on_revoked`, as the runtime does."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.records: list[Record] = []
        self.starts: dict[TopicPartition, StartPosition] = {}
        self.answers: list[tuple[CommitPosition, str | None]] = []
        self.raises: Exception | None = None

    @property
    def owned(self) -> set[tuple[str, int]]:
        """What was assigned and not taken away."""
        return {(key.topic, key.partition) for key in self.starts}

    @property
    def values(self) -> list[bytes | None]:
        """The values of everything read."""
        return [record.value() for record in self.records]

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        self.log.append(("assigned", [s[:2] for s in starts]))
        self.starts.update({TopicPartition(s.topic, s.partition): s for s in starts})

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append(("revoked", [tuple(p) for p in partitions]))
        for key in partitions:
            del self.starts[key]

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append(("lost", [tuple(p) for p in partitions]))
        for key in partitions:
            del self.starts[key]

    def on_gone(self, partition: TopicPartition, position: int, end: int) -> None:
        self.log.append(("gone", [(*partition, position, end)]))

    def on_deleted(self, ends: Sequence[tuple[TopicPartition, int]]) -> None:
        raise AssertionError(f"nothing is deleted in memory: {ends}")

    def on_records(self, records: Sequence[Record]) -> None:
        if self.raises is not None:
            raise self.raises
        self.records.extend(records)

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        self.answers.extend(results)

    def is_carried(self, partition: TopicPartition) -> bool:
        return False


def open_source(
    broker: MemoryBroker, *topics: str, **options: object
) -> tuple[MemorySource, Listener]:
    """A member of group `g` that has been assigned its partitions."""
    source, listener = MemorySource(broker, "g", **options), Listener()  # type: ignore[arg-type]
    source.subscribe(topics, listener)
    source.poll(0)
    return source, listener


def commit_of(position: int, *, partition: int = 0, metadata: str = "") -> CommitPosition:
    """A commit for topic `t`."""
    return CommitPosition("t", partition, position, metadata, 1)


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with topic `t` of one partition."""
    broker = MemoryBroker()
    broker.create_topic("t")
    return broker


def test_a_record_has_the_shape_of_a_kafka_message(broker: MemoryBroker) -> None:
    """Topic, partition, offset, key, value, headers, timestamp and len() are methods."""
    broker.clock.sleep(1.5)
    record = broker.produce("t", b"value", key=b"k", headers=[("a", b"1"), ("a", None)])
    assert (record.topic(), record.partition(), record.offset()) == ("t", 0, 0)
    assert (record.key(), record.value(), len(record)) == (b"k", b"value", 5)
    assert record.headers() == [("a", b"1"), ("a", None)]
    assert record.timestamp() == (1, broker.clock.now().wall_ms)
    assert repr(record) == "<MemoryRecord t/0/0>"


def test_a_tombstone_is_a_record(broker: MemoryBroker) -> None:
    """A record without value and headers has length 0, no headers and is still true."""
    record = broker.produce("t", None)
    assert (record.value(), len(record), record.headers(), bool(record)) == (None, 0, None, True)


def test_keys_choose_partitions_by_crc32(broker: MemoryBroker) -> None:
    """Equal keys meet in one partition; records without a key are spread over all."""
    broker.create_topic("t", 4)
    for key in (b"ada", b"bob", b"eve"):
        assert broker.produce("t", b"", key=key).partition() == crc32(key) % 4
    assert {broker.produce("t", b"").partition() for _ in range(8)} == {0, 1, 2, 3}


def test_unknown_targets_are_named(broker: MemoryBroker) -> None:
    """A missing topic or partition is refused by name, for writers, readers and tests."""
    with pytest.raises(PublishFailed, match="nowhere: unknown topic"):
        broker.produce("nowhere", b"")
    with pytest.raises(PublishFailed, match="t/3: the topic has 1 partitions"):
        broker.produce("t", b"", partition=3)
    with pytest.raises(KeyError, match="no partition t/1; topics are: t"):
        broker.log("t", 1)
    with pytest.raises(SourceFailed, match="unknown topics: u, v"):
        MemorySource(broker, "g").subscribe(["t", "u", "v"], Listener())
    with pytest.raises(ValueError, match="partitions=0"):
        broker.create_topic("u", 0)


def test_a_second_member_takes_half_of_the_partitions(broker: MemoryBroker) -> None:
    """It gets them only after their owner has given them up in its own poll."""
    broker.create_topic("t", 4)
    first, first_told = open_source(broker, "t")
    second, second_told = open_source(broker, "t")
    assert second_told.owned == set()
    first.poll(0)
    second.poll(0)
    assert first_told.owned == {("t", 0), ("t", 1)}
    assert second_told.owned == {("t", 2), ("t", 3)}


def test_what_a_member_leaves_goes_to_the_other(broker: MemoryBroker) -> None:
    """A member that closes gives up first; one that is killed is told nothing."""
    broker.create_topic("t", 3)
    first, first_told = open_source(broker, "t")
    second, second_told = open_source(broker, "t")
    third, third_told = open_source(broker, "t")
    for source in (first, second, third):
        source.poll(0)
    assert [len(x.owned) for x in (first_told, second_told, third_told)] == [1, 1, 1]
    first.close()
    assert first_told.log[-1][0] == "revoked"
    second.kill()
    assert second_told.owned == {("t", 1)}
    third.poll(0)
    assert third_told.owned == {("t", 0), ("t", 1), ("t", 2)}
    assert second.poll(0) == 0


def test_an_expelled_member_loses_everything_and_joins_again(broker: MemoryBroker) -> None:
    """It is told `lost`, its commits are refused until then, and it gets partitions again."""
    source, listener = open_source(broker, "t")
    source.expel()
    source.commit([commit_of(1)], wait=True)
    assert "unknown member" in str(listener.answers[-1][1])
    source.poll(0)
    assert [name for name, _ in listener.log] == ["assigned", "lost", "assigned"]
    source.commit([commit_of(1)], wait=True)
    assert listener.answers[-1][1] is None


def test_an_expelled_member_that_closes_is_told_lost(broker: MemoryBroker) -> None:
    """Leaving after an expulsion commits nothing in the name of a member that is gone."""
    source, listener = open_source(broker, "t")
    source.expel()
    source.close()
    assert listener.log[-1][0] == "lost"


def test_rebalance_takes_every_partition_once(broker: MemoryBroker) -> None:
    """On demand each partition is revoked and assigned anew, starting at the commit."""
    source, listener = open_source(broker, "t")
    broker.produce("t", b"a")
    broker.produce("t", b"b")
    source.poll(0)
    source.commit([commit_of(1)], wait=False)
    broker.rebalance()
    source.poll(0)
    assert [name for name, _ in listener.log] == ["assigned", "revoked", "assigned"]
    assert listener.values == [b"a", b"b", b"b"]
    source.poll(0)
    assert [name for name, _ in listener.log] == ["assigned", "revoked", "assigned"]


def test_commits_are_not_fenced_by_ownership(broker: MemoryBroker) -> None:
    """A live member can overwrite the commit of a partition it does not own, as on Kafka."""
    broker.create_topic("t", 2)
    open_source(broker, "t")
    second, _ = open_source(broker, "t")
    second.commit([commit_of(7, partition=0)], wait=True)
    committed = broker.committed("g", "t", 0)
    assert committed is not None
    assert committed.position == 7


def test_metadata_has_kafkas_limit(broker: MemoryBroker) -> None:
    """4,095 characters are stored, one more is refused, and nothing is stored then."""
    source, listener = open_source(broker, "t")
    source.commit([commit_of(1, metadata="x" * LONGEST_METADATA)], wait=True)
    source.commit([commit_of(2, metadata="x" * (LONGEST_METADATA + 1))], wait=True)
    assert [error is None for _, error in listener.answers] == [True, False]
    stored = broker.committed("g", "t")
    assert stored is not None
    assert (stored.position, len(stored.metadata)) == (1, LONGEST_METADATA)


def test_holes_are_passed(broker: MemoryBroker) -> None:
    """Skipped and compacted offsets are never read, and positions pass those at the end."""
    source, listener = open_source(broker, "t")
    broker.produce("t", b"a")
    broker.skip_offsets("t", count=2)
    broker.produce("t", b"b")
    broker.produce("t", b"c")
    assert broker.compact("t", 0, 3)
    assert not broker.compact("t", 0, 3)
    broker.skip_offsets("t")
    source.poll(0)
    assert [record.offset() for record in listener.records] == [0, 4]
    assert source.positions() == {("t", 0): 6}
    assert source.high_watermarks() == {("t", 0): 6}


def test_a_paused_position_passes_nothing_unread(broker: MemoryBroker) -> None:
    """What comes while a partition is paused stays to be read."""
    source, listener = open_source(broker, "t")
    source.pause([TopicPartition("t", 0), TopicPartition("t", 9)])
    broker.produce("t", b"a")
    broker.skip_offsets("t")
    assert source.poll(0) == 0
    assert source.positions() == {("t", 0): 0}
    source.resume([(TopicPartition("t", 0), 0), (TopicPartition("t", 9), 0)])
    assert source.poll(0) == 1
    assert listener.values == [b"a"]


def test_a_topic_that_is_created_anew_has_another_id(broker: MemoryBroker) -> None:
    """More partitions are the same topic; what does not exist has none."""
    before = broker.topic_id("t")
    broker.create_topic("t", 3)
    assert broker.topic_id("t") == before != ""
    broker.delete_topic("t")
    assert broker.topic_id("t") == ""
    broker.create_topic("t")
    assert broker.topic_id("t") not in {before, ""}


def test_retention_loses_what_was_not_read(broker: MemoryBroker) -> None:
    """A commit below the log's start begins at the start and tells how many are lost."""
    for value in (b"a", b"b", b"c"):
        broker.produce("t", value)
    broker.commit("g", "t", 0, 1, "m")
    broker.trim("t", 0, 2)
    _, listener = open_source(broker, "t")
    start = listener.starts[TopicPartition("t", 0)]
    assert start == StartPosition("t", 0, 2, False, "m", 1, broker.topic_id("t"), log_end=3)
    assert listener.values == [b"c"]


def test_retention_while_running_is_told(broker: MemoryBroker) -> None:
    """A reader whose next record is gone goes on at what is left."""
    source, listener = open_source(broker, "t")
    source.pause([TopicPartition("t", 0)])
    for value in (b"a", b"b", b"c"):
        broker.produce("t", value)
    broker.trim("t", 0, 2)
    source.poll(0)
    assert [name for name, _ in listener.log] == ["assigned"]
    source.resume([(TopicPartition("t", 0), 0)])
    source.poll(0)
    assert [name for name, _ in listener.log] == ["assigned", "gone"]
    assert listener.log[-1] == ("gone", [("t", 0, 2, 3)])
    assert listener.values == [b"c"]


def test_a_commit_beyond_the_end_is_of_another_log(broker: MemoryBroker) -> None:
    """After a topic was made anew its old commit is void and everything is read."""
    broker.commit("g", "t", 0, 50)
    broker.produce("t", b"a")
    _, listener = open_source(broker, "t", start="latest")
    assert not listener.starts[TopicPartition("t", 0)].committed
    assert listener.values == [b"a"]


def test_a_deleted_topic_leaves_its_owner(broker: MemoryBroker) -> None:
    """Its partitions are revoked, and the others go on."""
    broker.create_topic("u")
    source, listener = open_source(broker, "t", "u")
    broker.delete_topic("u")
    assert source.high_watermarks() == {("t", 0): 0}
    broker.produce("t", b"a")
    source.poll(0)
    assert listener.owned == {("t", 0)}
    assert listener.values == [b"a"]


def test_refused_writes_end_by_count_or_by_healing(broker: MemoryBroker) -> None:
    """A fault lasts for as many attempts as asked, or until the broker is healed."""
    broker.fail_publish("t", "not now", times=1)
    with pytest.raises(PublishFailed, match="not now"):
        broker.produce("t", b"")
    broker.produce("t", b"")
    broker.fail_publish("t")
    for _ in range(2):
        with pytest.raises(PublishFailed, match="broker away"):
            broker.produce("t", b"")
    broker.heal()
    assert len(broker.records("t")) == 1
    broker.produce("t", b"")
    assert len(broker.records("t", 0)) == 2


def test_refused_commits_say_why(broker: MemoryBroker) -> None:
    """A refused commit stores nothing and its reason reaches the listener."""
    source, listener = open_source(broker, "t")
    broker.fail_commit("g", "coordinator away", times=1)
    source.commit([commit_of(1)], wait=False)
    source.commit([commit_of(2)], wait=False)
    assert listener.answers == []
    source.poll(0)
    assert listener.answers == [(commit_of(1), "coordinator away"), (commit_of(2), None)]


def test_answers_that_were_not_polled_come_at_the_end(broker: MemoryBroker) -> None:
    """Closing reports the commits that are outstanding before it gives anything up."""
    source, listener = open_source(broker, "t")
    source.commit([commit_of(1)], wait=False)
    source.close()
    assert listener.answers == [(commit_of(1), None)]
    source.close()


def test_size_limits_count_headers(broker: MemoryBroker) -> None:
    """A record over its topic's limit is refused as too large, until the limit is lifted."""
    broker.limit_size("t", 100)
    with pytest.raises(TooLarge, match="the limit is 100"):
        broker.produce("t", b"x", headers=[("stack", b"x" * 100)])
    broker.produce("t", b"x")
    broker.limit_size("t", None)
    broker.produce("t", b"x" * 1000)


def test_a_listener_that_raises_fails_the_source(broker: MemoryBroker) -> None:
    """The error is told as SourceFailed, now and at every later poll."""
    source, listener = open_source(broker, "t")
    listener.raises = RuntimeError("boom")
    broker.produce("t", b"a")
    for _ in range(2):
        with pytest.raises(SourceFailed, match="boom"):
            source.poll(0)


def test_no_partition_starves(broker: MemoryBroker) -> None:
    """Small batches begin with another partition each time."""
    broker.create_topic("t", 2)
    for partition in (0, 1):
        for _ in range(10):
            broker.produce("t", b"", partition=partition)
    source, listener = open_source(broker, "t", batch=2)
    source.poll(0)
    assert {record.partition() for record in listener.records} == {0, 1}


def test_a_waiting_poll_sees_what_another_thread_writes(broker: MemoryBroker) -> None:
    """A record ends the wait at once; without one the wait ends by itself."""
    source, _ = open_source(broker, "t")
    assert source.poll(0.001) == 0
    writer = threading.Timer(0.01, broker.produce, ("t", b"a"))
    writer.start()
    assert source.poll(30) == 1
    writer.join()


def test_a_publisher_tells_how_it_went() -> None:
    """It confirms, creates topics only where allowed, and refuses after its end."""
    broker = MemoryBroker(ManualClock())
    told: list[BaseException | None] = []
    MemoryPublisher(broker).publish("new", b"a", None, [], told.append)
    publisher = MemoryPublisher(broker, create_topics=True)
    publisher.publish("new", b"b", b"k", [("h", b"1")], told.append)
    publisher.close(1)
    publisher.publish("new", b"c", None, [], told.append)
    assert [str(error)[:13] if error else None for error in told] == [
        "new: unknown ",
        None,
        "the worker ha",
    ]
    assert [record.value() for record in broker.records("new")] == [b"b"]
