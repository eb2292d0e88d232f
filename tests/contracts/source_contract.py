"""SourceContract: what every `ports.Source` does, on memory as on Kafka.

A subclass gives a `world` fixture: how to make topics, records and sources there. Everything
else here talks to the port alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal

import pytest

from ackfloor.core.records.record import CommitPosition, Record, StartPosition, TopicPartition
from ackfloor.errors import SourceFailed
from ackfloor.ports import Source

BOUND_S = 60.0
#: One character more than a committed position's metadata may have.
TOO_LONG = 4_097


def told(start: StartPosition) -> StartPosition:
    """A start without what the log alone knows: its topic's id and its end."""
    return start._replace(topic_id="", log_end=None)


class SourceWorld(ABC):
    """Where a source reads."""

    @abstractmethod
    def create_topic(self, partitions: int = 1) -> str:
        """A new topic."""

    @abstractmethod
    def produce(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Write records."""

    @abstractmethod
    def leave_hole(self, topic: str) -> None:
        """Add at least one offset to partition 0 that no reader will ever get."""

    @abstractmethod
    def trim(self, topic: str, start: int) -> None:
        """Delete what is below offset `start` of partition 0."""

    @abstractmethod
    def commit(self, group: str, topic: str, position: int) -> None:
        """Commit for partition 0 from outside, while the group has no members."""

    @abstractmethod
    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int, str] | None:
        """Position and metadata that the group has stored."""

    @abstractmethod
    def new_group(self) -> str:
        """A group that nobody has used."""

    @abstractmethod
    def source(self, group: str, start: Literal["earliest", "latest"] = "earliest") -> Source:
        """A source that has not subscribed; closed at the end of the test."""


class Listener:
    """Notes what a source reports; acts inside callbacks where a test asks for it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.starts: dict[tuple[str, int], StartPosition] = {}
        self.records: list[Record] = []
        self.answers: list[tuple[CommitPosition, str | None]] = []
        self.carried: set[TopicPartition] = set()
        self.when_assigned: Callable[[], None] = lambda: None
        self.when_revoked: Callable[[], None] = lambda: None

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        self.log.append("assigned")
        self.starts.update({(start.topic, start.partition): start for start in starts})
        self.when_assigned()

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append("revoked")
        self.when_revoked()
        for key in partitions:
            del self.starts[key.topic, key.partition]

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.log.append("lost")
        for key in partitions:
            del self.starts[key.topic, key.partition]

    def on_gone(self, partition: TopicPartition, position: int, end: int) -> None:
        self.log.append(f"gone to {position} of {end}")

    def on_deleted(self, ends: Sequence[tuple[TopicPartition, int]]) -> None:
        self.log.append(f"deleted {ends}")

    def on_records(self, records: Sequence[Record]) -> None:
        for record in records:
            assert (record.topic(), record.partition()) in self.starts
        self.records.extend(records)

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        self.answers.extend(results)

    def is_carried(self, partition: TopicPartition) -> bool:
        return partition in self.carried

    @property
    def values(self) -> list[bytes | None]:
        """The values that were read, in order."""
        return [record.value() for record in self.records]


def pump(done: Callable[[], object], *sources: Source) -> None:
    """Poll sources in turn until something has come about."""
    end_s = time.monotonic() + BOUND_S
    while not done():
        assert time.monotonic() < end_s, "it did not come about in time"
        for source in sources:
            source.poll(0.05)


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values b"0", b"1", ..."""
    return [str(n).encode() for n in range(first, first + count)]


class SourceContract:
    """Subclass it with a `world` fixture."""

    @pytest.fixture
    def world(self) -> Iterator[SourceWorld]:
        """Where the source under test reads."""
        raise NotImplementedError

    def joined(
        self, world: SourceWorld, group: str, *topics: str, **options: str
    ) -> tuple[Source, Listener]:
        """A member of the group that has been assigned every partition."""
        source, listener = world.source(group, **options), Listener()  # type: ignore[arg-type]
        source.subscribe(topics, listener)
        pump(lambda: {topic for topic, _ in listener.starts} == set(topics), source)
        return source, listener

    def test_a_new_group_reads_everything_in_order(self, world: SourceWorld) -> None:
        """It starts at the first record, says that nothing was committed, and keeps the order."""
        topic = world.create_topic(2)
        world.produce(topic, numbered(50), 0)
        world.produce(topic, numbered(50, 50), 1)
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) >= 100, source)
        assert [s.committed for s in listener.starts.values()] == [False, False]
        assert {s.position for s in listener.starts.values()} == {0}
        for partition in (0, 1):
            offsets = [r.offset() for r in listener.records if r.partition() == partition]
            assert offsets == list(range(50))
        assert sorted(listener.values) == sorted(numbered(100))  # type: ignore[type-var]

    def test_records_have_the_shape_of_a_message(self, world: SourceWorld) -> None:
        """Methods, not attributes; len() is the value's size, also of a tombstone."""
        topic = world.create_topic()
        world.produce(topic, [b"four", b"", None])
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) == 3, source)
        record = listener.records[0]
        assert (record.topic(), record.partition(), record.offset()) == (topic, 0, 0)
        assert (record.value(), record.key(), record.headers()) == (b"four", None, None)
        assert record.timestamp()[0] == 1
        assert [len(r) for r in listener.records] == [4, 0, 0]
        assert listener.values == [b"four", b"", None]

    def test_a_latest_group_reads_what_comes(self, world: SourceWorld) -> None:
        """It starts at the end, and its start is not committed yet."""
        topic = world.create_topic()
        world.produce(topic, numbered(3))
        source, listener = self.joined(world, world.new_group(), topic, start="latest")
        assert told(listener.starts[topic, 0]) == StartPosition(topic, 0, 3, False)
        world.produce(topic, [b"new"])
        pump(lambda: listener.records, source)
        assert listener.values == [b"new"]

    def test_a_commit_comes_back_with_its_metadata(self, world: SourceWorld) -> None:
        """With wait=True it is answered on return; the next member starts there."""
        topic, group = world.create_topic(), world.new_group()
        world.produce(topic, numbered(5))
        source, listener = self.joined(world, group, topic)
        position = CommitPosition(topic, 0, 3, "af1:metadata", 7)
        source.commit([position], wait=True)
        assert listener.answers == [(position, None)]
        assert world.committed(group, topic) == (3, "af1:metadata")
        source.close()
        source, listener = self.joined(world, group, topic)
        pump(lambda: len(listener.records) == 2, source)
        assert told(listener.starts[topic, 0]) == StartPosition(topic, 0, 3, True, "af1:metadata")
        assert listener.values == [b"3", b"4"]

    def test_a_commit_without_waiting_is_answered_by_a_poll(self, world: SourceWorld) -> None:
        """The answer names each position, and comes from inside a later poll."""
        topic, group = world.create_topic(2), world.new_group()
        source, listener = self.joined(world, group, topic)
        positions = [CommitPosition(topic, p, 0, "", 1) for p in (0, 1)]
        source.commit(positions, wait=False)
        assert listener.answers == []
        pump(lambda: len(listener.answers) == 2, source)
        assert sorted(listener.answers) == [(position, None) for position in positions]

    def test_a_refused_commit_says_why_and_raises_nothing(self, world: SourceWorld) -> None:
        """Metadata that is too long is refused; what was stored before stays."""
        topic, group = world.create_topic(), world.new_group()
        source, listener = self.joined(world, group, topic)
        source.commit([CommitPosition(topic, 0, 0, "kept", 1)], wait=True)
        source.commit([CommitPosition(topic, 0, 0, "x" * TOO_LONG, 1)], wait=True)
        assert [error is None for _, error in listener.answers] == [True, False]
        source.commit([CommitPosition(topic, 0, 0, "x" * TOO_LONG, 1)], wait=False)
        pump(lambda: len(listener.answers) == 3, source)
        assert listener.answers[2][1]
        assert world.committed(group, topic) == (0, "kept")

    def test_of_commits_on_their_way_the_last_one_wins(self, world: SourceWorld) -> None:
        """They arrive in the order in which they were sent, whatever their positions are."""
        topic, group = world.create_topic(), world.new_group()
        world.produce(topic, numbered(12))
        source, listener = self.joined(world, group, topic)
        positions = [CommitPosition(topic, 0, n, str(n), 1) for n in (3, 9, 5, 12, 7)]
        for position in positions:
            source.commit([position], wait=False)
        pump(lambda: (positions[-1], None) in listener.answers, source)
        assert world.committed(group, topic) == (7, "7")

    def test_a_member_can_commit_what_is_no_longer_its_own(self, world: SourceWorld) -> None:
        """The broker asks who is a member, not who owns the partition: nobody else sees to it."""
        topic, group = world.create_topic(2), world.new_group()
        first, told = self.joined(world, group, topic)
        second, second_told = world.source(group), Listener()
        second.subscribe([topic], second_told)
        pump(lambda: len(told.starts) == len(second_told.starts) == 1, first, second)
        ((_, gone),) = second_told.starts
        position = CommitPosition(topic, gone, 0, "not mine", 1)

        def accepted() -> bool:
            if not told.answers or told.answers[-1][1] is not None:
                # Also again: in the last moment of a rebalance the member is outdated.
                told.answers.clear()
                first.commit([position], wait=True)
            return told.answers == [(position, None)]

        pump(accepted, first, second)
        assert world.committed(group, topic, gone) == (0, "not mine")

    def test_a_paused_partition_waits_and_the_others_do_not(self, world: SourceWorld) -> None:
        """Nothing is lost or repeated over a pause; partitions of others are ignored."""
        topic = world.create_topic(2)
        source, listener = self.joined(world, world.new_group(), topic)
        nobodys = TopicPartition(topic, 9)
        source.pause([TopicPartition(topic, 0), nobodys])
        world.produce(topic, [b"paused"], 0)
        world.produce(topic, [b"flows"], 1)
        pump(lambda: listener.records, source)
        for _ in range(5):
            source.poll(0.02)
        assert listener.values == [b"flows"]
        source.resume([(TopicPartition(topic, 0), 0), (nobodys, 0)])
        pump(lambda: len(listener.records) == 2, source)
        assert listener.values == [b"flows", b"paused"]

    def test_resume_reads_from_the_given_position(self, world: SourceWorld) -> None:
        """What was read beyond it comes again."""
        topic = world.create_topic()
        world.produce(topic, numbered(4))
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) == 4, source)
        source.pause([TopicPartition(topic, 0)])
        source.resume([(TopicPartition(topic, 0), 2)])
        pump(lambda: len(listener.records) == 6, source)
        assert listener.values == [b"0", b"1", b"2", b"3", b"2", b"3"]

    def test_after_a_rewind_the_first_record_is_that_of_the_new_position(
        self, world: SourceWorld
    ) -> None:
        """Nothing comes of what was fetched before, whether the partition was polled meanwhile or
        not: a record that came out of turn would leave those before it unread."""
        topic = world.create_topic()
        world.produce(topic, numbered(6_000))
        source, listener = self.joined(world, world.new_group(), topic)
        key = TopicPartition(topic, 0)
        dice = Random(topic)
        for _ in range(12):
            listener.records.clear()
            pump(lambda: len(listener.records) >= 50, source)
            source.pause([key])
            if dice.random() < 0.5:
                source.poll(0.05)
            read_to = listener.records[-1].offset()
            position = max(0, read_to - dice.randrange(1, 2_500))
            listener.records.clear()
            source.resume([(key, position)])
            pump(lambda: len(listener.records) >= 50, source)
            offsets = [record.offset() for record in listener.records]
            assert offsets == list(range(position, position + len(offsets)))
            source.pause([key])
            source.resume([(key, 0)])

    def test_holes_block_nothing(self, world: SourceWorld) -> None:
        """Offsets that never arrive are passed, in the middle and at the end of the log."""
        topic = world.create_topic()
        world.produce(topic, [b"a"])
        world.leave_hole(topic)
        world.produce(topic, [b"b"])
        last = None
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) == 2, source)
        last = listener.records[1].offset()
        assert listener.values == [b"a", b"b"]
        assert last > 1
        world.leave_hole(topic)
        # The hole and its marker are two offsets, and the first may be passed before the other.
        pump(lambda: last + 1 < source.positions().get((topic, 0), 0), source)
        pump(lambda: source.positions() == source.high_watermarks(), source)
        assert source.positions()[topic, 0] > last + 1

    def test_positions_follow_what_was_read(self, world: SourceWorld) -> None:
        """Position and log end of each assigned partition, and of no other."""
        topic = world.create_topic()
        world.produce(topic, numbered(3))
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) == 3, source)
        assert source.positions() == {(topic, 0): 3}
        assert source.high_watermarks() == {(topic, 0): 3}

    def test_it_knows_how_many_partitions_a_topic_has(self, world: SourceWorld) -> None:
        """Also of those that another member reads; at the assignment at the latest."""
        topic = world.create_topic(partitions=3)
        source, _ = self.joined(world, world.new_group(), topic)
        assert source.partition_counts()[topic] == 3

    def test_a_commit_below_the_log_counts_the_lost(self, world: SourceWorld) -> None:
        """It goes on at the first record that is there."""
        topic, group = world.create_topic(), world.new_group()
        world.produce(topic, numbered(6))
        world.commit(group, topic, 1)
        world.trim(topic, 4)
        source, listener = self.joined(world, group, topic)
        pump(lambda: len(listener.records) == 2, source)
        assert told(listener.starts[topic, 0]) == StartPosition(topic, 0, 4, False, "", 3)
        assert listener.values == [b"4", b"5"]

    def test_a_commit_beyond_the_log_is_void(self, world: SourceWorld) -> None:
        """The log was made anew: what is there is read from its beginning."""
        topic, group = world.create_topic(), world.new_group()
        world.produce(topic, numbered(2))
        world.commit(group, topic, 99)
        source, listener = self.joined(world, group, topic)
        pump(lambda: len(listener.records) == 2, source)
        assert told(listener.starts[topic, 0]) == StartPosition(topic, 0, 0, False)

    def test_partitions_move_with_their_commit(self, world: SourceWorld) -> None:
        """The old owner commits inside its revoke, and the new one starts there."""
        topic, group = world.create_topic(4), world.new_group()
        for partition in range(4):
            world.produce(topic, numbered(2), partition)
        first, told = self.joined(world, group, topic)
        pump(lambda: len(told.records) == 8, first)
        told.when_revoked = lambda: first.commit(
            [CommitPosition(topic, p, 1, "", 1) for p in range(4)], wait=True
        )
        second, second_told = world.source(group), Listener()
        second.subscribe([topic], second_told)
        pump(lambda: second_told.starts and len(told.starts) < 4, first, second)
        pump(lambda: len(told.starts) + len(second_told.starts) == 4, first, second)
        assert set(told.starts).isdisjoint(second_told.starts)
        assert "lost" not in told.log
        assert {s.position for s in second_told.starts.values()} == {1}
        pump(lambda: len(second_told.records) == len(second_told.starts), first, second)
        assert set(second_told.values) == {b"1"}

    def test_what_a_transaction_carries_begins_after_its_end(self, world: SourceWorld) -> None:
        """At what is committed by then; the other partitions do not wait."""
        topic, group = world.create_topic(2), world.new_group()
        for partition in (0, 1):
            world.produce(topic, numbered(3), partition)
        source, listener = world.source(group), Listener()
        listener.carried.add(TopicPartition(topic, 0))
        source.subscribe([topic], listener)
        pump(lambda: len(listener.records) == 3, source)
        for _ in range(5):
            source.poll(0.02)
        assert listener.starts.keys() == {(topic, 1)}
        # What the transaction commits.
        source.commit([CommitPosition(topic, 0, 2, "", 1)], wait=True)
        listener.carried.clear()
        pump(lambda: len(listener.records) == 4, source)
        assert listener.starts[topic, 0].position == 2
        assert [r.offset() for r in listener.records if r.partition() == 0] == [2]

    def test_closing_gives_everything_up_first(self, world: SourceWorld) -> None:
        """The revoke has run, with its commit, when close returns."""
        topic, group = world.create_topic(), world.new_group()
        world.produce(topic, numbered(3))
        source, listener = self.joined(world, group, topic)
        pump(lambda: len(listener.records) == 3, source)
        listener.when_revoked = lambda: source.commit(
            [CommitPosition(topic, 0, 2, "end", 1)], wait=True
        )
        source.close()
        assert listener.log == ["assigned", "revoked"]
        assert listener.answers[-1][1] is None
        assert world.committed(group, topic) == (2, "end")
        source.close()

    def test_an_idle_poll_ends(self, world: SourceWorld) -> None:
        """Without records it returns 0 when its time is over."""
        topic = world.create_topic()
        source, listener = self.joined(world, world.new_group(), topic)
        assert source.poll(0.01) == 0
        assert source.poll(0) == 0
        assert listener.records == []

    def test_a_listener_that_raises_fails_the_source(self, world: SourceWorld) -> None:
        """An exception inside a rebalance is not swallowed: the worker must go."""
        topic = world.create_topic()
        source, listener = world.source(world.new_group()), Listener()

        def fail() -> None:
            raise RuntimeError("boom")

        listener.when_assigned = fail
        source.subscribe([topic], listener)
        with pytest.raises(SourceFailed, match="boom"):
            pump(lambda: False, source)
