"""ParkedContract: what a source says of the records that wait in retry topics of a quarantine.

A subclass gives a `world` fixture, as for `SourceContract`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pytest

from ackfloor.core.acks.gap_set import GapSet, encode
from ackfloor.core.records.envelope import Envelope, write_headers
from ackfloor.core.records.record import CommitPosition, Headers, ParkedRecord, StartPosition
from ackfloor.ports import Source
from tests.contracts.source_contract import Listener, SourceWorld, pump

#: A key, and headers.
Waiting = tuple[bytes | None, Headers]
SOURCE = "orders"


class ParkedWorld(SourceWorld):
    """Where a source reads that says what is parked."""

    @abstractmethod
    def quarantining_source(self, group: str, sources: Mapping[str, str]) -> Source:
        """A source that has not subscribed; `sources` has the retry topics of a quarantine."""

    @abstractmethod
    def park(self, topic: str, records: Sequence[Waiting], partition: int = 0) -> None:
        """Write records to a retry topic."""


def waiting(
    key: bytes | None, offset: int, *, partition: int = 0, attempt: int = 1, topic: str = SOURCE
) -> Waiting:
    """A record that was first delivered at an offset of the source topic."""
    envelope = Envelope(
        origin_topic=topic, origin_partition=partition, origin_offset=offset, attempt=attempt
    )
    return key, write_headers(envelope, [("own", b"\xff"), ("own", None)])


def untimed(parked: Sequence[ParkedRecord]) -> tuple[ParkedRecord, ...]:
    """What was found, but for when the broker or a clock says that it was written."""
    return tuple(each._replace(timestamp_ms=0) for each in parked)


class ParkedContract:
    """Subclass it with a `world` fixture."""

    @pytest.fixture
    def world(self) -> Iterator[ParkedWorld]:
        """Where the source under test reads."""
        raise NotImplementedError

    def joined(
        self, world: ParkedWorld, group: str, *topics: str, others: Sequence[str] = ()
    ) -> tuple[Source, Listener]:
        """A member with an assignment of these retry topics, and of others."""
        source = world.quarantining_source(group, dict.fromkeys(topics, SOURCE))
        listener = Listener()
        source.subscribe([*topics, *others], listener)
        pump(lambda: {topic for topic, _ in listener.starts} == {*topics, *others}, source)
        return source, listener

    def starts(
        self, world: ParkedWorld, group: str, *topics: str
    ) -> Mapping[tuple[str, int], StartPosition]:
        """What the next member of a group begins with."""
        source, listener = self.joined(world, group, *topics)
        found = dict(listener.starts)
        source.close()
        return found

    def test_records_with_a_key_of_the_same_partition_are_named(self, world: ParkedWorld) -> None:
        """In the log's order, and also two of one origin; they are read as all others are."""
        topic = world.create_topic(2)
        world.park(
            topic,
            [
                waiting(b"a", 5), waiting(None, 6), waiting(b"b", 7, partition=1),
                waiting(b"b", 8, attempt=3), waiting(b"", 9), waiting(b"a", 5),
                waiting(b"a", 10, topic="payments"), (b"a", []),
            ],
        )  # fmt: skip
        world.park(topic, [waiting(b"b", 7, partition=1), waiting(b"a", 5)], 1)
        source, listener = self.joined(world, world.new_group(), topic)
        pump(lambda: len(listener.records) == 10, source)
        assert untimed(listener.starts[topic, 0].parked) == (
            ParkedRecord(0, b"a", 5, 1),
            ParkedRecord(3, b"b", 8, 3),
            ParkedRecord(4, b"", 9, 1),
            ParkedRecord(5, b"a", 5, 1),
        )
        assert untimed(listener.starts[topic, 1].parked) == (ParkedRecord(0, b"b", 7, 1),)
        assert all(each.timestamp_ms > 0 for each in listener.starts[topic, 0].parked)
        assert listener.log == ["assigned"]

    def test_what_the_group_has_settled_is_left_out(self, world: ParkedWorld) -> None:
        """Below its position and in the gap set beside it."""
        topic, group = world.create_topic(), world.new_group()
        world.park(topic, [waiting(b"k", number) for number in range(9)])
        source, _ = self.joined(world, group, topic)
        text, _ = encode(GapSet(2, ((4, 6), (7, 8)), leader_epoch=1_000), topic, 0)
        source.commit([CommitPosition(topic, 0, 2, text, 1)], wait=True)
        source.close()
        (start,) = self.starts(world, group, topic).values()
        assert (start.position, start.metadata) == (2, text)
        assert [parked.offset for parked in start.parked] == [2, 3, 6, 8]

    def test_metadata_of_another_position_settles_nothing(self, world: ParkedWorld) -> None:
        """As when the partition is read."""
        topic, group = world.create_topic(), world.new_group()
        world.park(topic, [waiting(b"k", number) for number in range(4)])
        source, _ = self.joined(world, group, topic)
        text, _ = encode(GapSet(0, ((2, 3),), leader_epoch=1_000), topic, 0)
        source.commit([CommitPosition(topic, 0, 1, text, 1)], wait=True)
        source.close()
        (start,) = self.starts(world, group, topic).values()
        assert [parked.offset for parked in start.parked] == [1, 2, 3]

    def test_at_the_end_nothing_is_parked(self, world: ParkedWorld) -> None:
        """Neither in an empty log nor behind its last record."""
        empty, read, group = world.create_topic(), world.create_topic(), world.new_group()
        world.park(read, [waiting(b"k", number) for number in range(3)])
        world.commit(group, read, 3)
        starts = self.starts(world, group, empty, read)
        assert [start.parked for start in starts.values()] == [(), ()]

    def test_holes_hide_nothing(self, world: ParkedWorld) -> None:
        """Offsets that never arrive, in the middle and at the end, where there is nothing else."""
        topic, group = world.create_topic(), world.new_group()
        world.park(topic, [waiting(b"a", 1)])
        world.leave_hole(topic)
        world.park(topic, [waiting(b"b", 2)])
        world.leave_hole(topic)
        (start,) = self.starts(world, group, topic).values()
        assert [parked.key for parked in start.parked] == [b"a", b"b"]
        end = start.parked[1].offset + 1
        world.commit(group, topic, end)
        (start,) = self.starts(world, group, topic).values()
        assert (start.position, start.parked) == (end, ())

    def test_what_retention_has_removed_is_not_parked(self, world: ParkedWorld) -> None:
        """The log begins above the group's position."""
        topic, group = world.create_topic(), world.new_group()
        world.park(topic, [waiting(b"k", number) for number in range(6)])
        world.commit(group, topic, 1)
        world.trim(topic, 4)
        (start,) = self.starts(world, group, topic).values()
        assert (start.position, start.lost) == (4, 3)
        assert [parked.offset for parked in start.parked] == [4, 5]

    def test_of_other_topics_nothing_is_named(self, world: ParkedWorld) -> None:
        """Sources, and retry topics of handlers that don't quarantine."""
        topic, other = world.create_topic(), world.create_topic()
        for each in (topic, other):
            world.park(each, [waiting(b"k", 1)])
        source, listener = self.joined(world, world.new_group(), topic, others=[other])
        pump(lambda: len(listener.records) == 2, source)
        assert untimed(listener.starts[topic, 0].parked) == (ParkedRecord(0, b"k", 1, 1),)
        assert listener.starts[other, 0].parked == ()

    def test_each_owner_finds_what_is_parked_by_then(self, world: ParkedWorld) -> None:
        """Who takes a partition over within the group, as well."""
        topic, group = world.create_topic(2), world.new_group()
        world.park(topic, [waiting(b"k", 0, partition=1)], 1)
        first, _ = self.joined(world, group, topic)
        world.park(topic, [waiting(b"k", 1, partition=1)], 1)
        world.park(topic, [waiting(b"k", 2)], 0)
        second = world.quarantining_source(group, {topic: SOURCE})
        listener = Listener()
        second.subscribe([topic], listener)
        pump(lambda: listener.starts, first, second)
        ((partition, start),) = ((key[1], start) for key, start in listener.starts.items())
        assert [p.origin_offset for p in start.parked] == ([2] if partition == 0 else [0, 1])
