"""BroadcastContract: what a source without a group does, on memory as on Kafka."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import pytest

from ackfloor.core.records.record import CommitPosition, TopicPartition
from ackfloor.errors import SourceFailed
from ackfloor.ports import Source
from tests.contracts.source_contract import Listener, SourceWorld, numbered, pump


class BroadcastWorld(SourceWorld):
    """Where a source without a group reads."""

    @abstractmethod
    def broadcast_source(self, group: str) -> Source:
        """A source that has not subscribed; closed at the end of the test."""

    @abstractmethod
    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic this many partitions in all."""


class BroadcastContract:
    """Subclass it with a `world` fixture."""

    @pytest.fixture
    def world(self) -> Iterator[BroadcastWorld]:
        """Where the source under test reads."""
        raise NotImplementedError

    @staticmethod
    def reading(world: BroadcastWorld, group: str, topic: str) -> tuple[Source, Listener]:
        """A source that has been assigned every partition."""
        source, listener = world.broadcast_source(group), Listener()
        source.subscribe([topic], listener)
        pump(lambda: listener.starts, source)
        return source, listener

    def test_every_source_of_a_group_reads_every_record(self, world: BroadcastWorld) -> None:
        """From the end as it was at its start, in order within each partition."""
        topic, group = world.create_topic(2), world.new_group()
        world.produce(topic, [b"before"], 0)
        (one, heard), (two, too) = (self.reading(world, group, topic) for _ in range(2))
        world.produce(topic, numbered(20), 0)
        world.produce(topic, numbered(20, 20), 1)
        pump(lambda: len(heard.records) == len(too.records) == 40, one, two)
        for listener in (heard, too):
            assert sorted(listener.starts) == [(topic, 0), (topic, 1)]
            assert listener.log == ["assigned"]
            by_partition = [
                [r.value() for r in listener.records if r.partition() == p] for p in (0, 1)
            ]
            assert by_partition == [numbered(20), numbered(20, 20)]

    def test_nothing_is_committed(self, world: BroadcastWorld) -> None:
        """A commit is answered like any other, and the group has nothing."""
        topic, group = world.create_topic(), world.new_group()
        source, listener = self.reading(world, group, topic)
        first = CommitPosition(topic, 0, 1, "", 1)
        last = CommitPosition(topic, 0, 2, "", 1)
        source.commit([first], wait=False)
        assert listener.answers == []
        pump(lambda: listener.answers, source)
        source.commit([last], wait=True)
        assert listener.answers == [(first, None), (last, None)]
        source.close()
        assert listener.log == ["assigned", "revoked"]
        assert world.committed(group, topic) is None

    def test_a_new_partition_is_read_from_its_beginning(self, world: BroadcastWorld) -> None:
        """What was written before it was noticed is not skipped; nothing else is read again."""
        topic = world.create_topic()
        world.produce(topic, [b"before"])
        source, listener = self.reading(world, world.new_group(), topic)
        world.add_partitions(topic, 3)
        world.produce(topic, [b"new"], 2)
        world.produce(topic, [b"old"], 0)
        pump(lambda: len(listener.records) == 2, source)
        assert sorted(listener.values, key=str) == [b"new", b"old"]
        assert sorted(partition for _, partition in listener.starts) == [0, 1, 2]
        assert "revoked" not in listener.log

    def test_a_paused_partition_goes_on_where_it_was(self, world: BroadcastWorld) -> None:
        """Also while new partitions come."""
        topic = world.create_topic()
        source, listener = self.reading(world, world.new_group(), topic)
        key = TopicPartition(topic, 0)
        source.pause([key])
        world.produce(topic, numbered(3))
        world.add_partitions(topic, 2)
        world.produce(topic, [b"other"], 1)
        pump(lambda: listener.records, source)
        assert listener.values == [b"other"]
        source.resume([(key, 0)])
        pump(lambda: len(listener.records) == 4, source)
        assert listener.values[1:] == numbered(3)
        assert source.positions()[topic, 0] == 3
        assert source.high_watermarks()[topic, 0] == 3

    def test_what_retention_has_taken_is_counted(self, world: BroadcastWorld) -> None:
        """Reading goes on with what is left, in the same epoch."""
        topic = world.create_topic()
        source, listener = self.reading(world, world.new_group(), topic)
        source.pause([TopicPartition(topic, 0)])
        source.poll(0)
        world.produce(topic, numbered(5))
        world.trim(topic, 3)
        source.resume([(TopicPartition(topic, 0), 0)])
        pump(lambda: len(listener.records) == 2, source)
        assert listener.values == [b"3", b"4"]
        assert listener.log == ["assigned", "gone to 3 of 5"]

    def test_a_missing_topic_is_an_error(
        self, world: BroadcastWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of the start, not of a poll that waits for ever."""
        monkeypatch.setattr("ackfloor.kafka.consume.broadcast_source.PATIENCE_S", 0.5)
        source = world.broadcast_source(world.new_group())
        with pytest.raises(SourceFailed):
            self._subscribe_to_nothing(source)

    @staticmethod
    def _subscribe_to_nothing(source: Source) -> None:
        source.subscribe(["there-is-none"], Listener())
        source.poll(0.1)
