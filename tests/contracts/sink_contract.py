"""SinkContract: what every `ports.Sink` does, on memory as on Kafka."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pytest

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.record import Headers, Record
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AckStats, Assignment, HandlerRules, HandlerState
from ackfloor.ports import Sink
from ackfloor.testing.memory.memory_log import MemoryRecord

BOUND_S = 60.0
INCOMPRESSIBLE = random.Random(0).randbytes(50_000)


class SinkWorld(ABC):
    """Where a sink writes."""

    @abstractmethod
    def create_topic(self, partitions: int = 1, most_bytes: int | None = None) -> str:
        """A new topic, perhaps with a limit on the size of its records."""

    @abstractmethod
    def missing_topic(self) -> str:
        """The name of a topic that does not exist."""

    @abstractmethod
    def records(self, topic: str) -> Sequence[Record]:
        """What is in a topic, in order of partition and offset."""

    @abstractmethod
    def sink(self) -> Sink:
        """A sink that is not open."""


class Listener:
    """Notes what became of parcels."""

    def __init__(self) -> None:
        self.published: list[PendingWrite] = []
        self.failed: list[tuple[PendingWrite, str, bool]] = []

    def on_published(self, parcels: Sequence[PendingWrite]) -> None:
        self.published += parcels

    def on_publish_failed(self, parcel: PendingWrite, error: str, *, too_large: bool) -> None:
        self.failed.append((parcel, error, too_large))


def assignment_of(name: str = "bill", *, manual: bool = False) -> Assignment:
    """An assignment for deliveries that no engine made."""
    return Assignment(
        "orders",
        0,
        1,
        0,
        handler=HandlerState(HandlerRules(name, manual=manual)),
        source_topic="orders",
        tier_s=None,
        stats=AckStats("orders", name),
        inbox=deque(),
        clock=time.monotonic,
        now_ms=0,
    )


def parcel_of(
    topic: str,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Headers = (),
    partition: int | None = 0,
) -> PendingWrite:
    """A parcel as the engine makes them."""
    record = MemoryRecord("orders", 0, 0, key, value, (), 0)
    delivery = TrackedDelivery(assignment_of(), record, 0, len(record), 0.0)
    parcel = PendingWrite(delivery, None, Envelope(), 0.0)
    parcel.topic, parcel.partition, parcel.headers = topic, partition, headers
    return parcel


def pump(sink: Sink, done: Callable[[], object]) -> None:
    """Poll a sink until something has come about."""
    end_s = time.monotonic() + BOUND_S
    while not done():
        assert time.monotonic() < end_s, "it did not come about in time"
        sink.poll()
        time.sleep(0.001)


class SinkContract:
    """Subclass it with a `world` fixture."""

    @pytest.fixture
    def world(self) -> Iterator[SinkWorld]:
        """Where the sink under test writes."""
        raise NotImplementedError

    @pytest.fixture
    def opened(self, world: SinkWorld) -> Iterator[tuple[Sink, Listener]]:
        """An open sink and its listener; closed after the test."""
        sink, listener = world.sink(), Listener()
        sink.open(listener)
        yield sink, listener
        sink.close(10.0)

    @pytest.mark.parametrize(
        ("key", "value", "headers"),
        [
            (b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3")]),
            (b"\xff\x00", b"\x00" * 1000, [("not-utf8", b"\xff"), ("null", None), ("", b"")]),
            (b"", b"", []),
            (None, None, [("tombstone", b"1")]),
        ],
    )
    def test_a_parcel_is_written_byte_for_byte(
        self,
        world: SinkWorld,
        opened: tuple[Sink, Listener],
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """Key, value and headers arrive as they are, in order, repeated names included."""
        sink, listener = opened
        topic = world.create_topic()
        parcel = parcel_of(topic, key=key, value=value, headers=headers)
        sink.publish(parcel)
        pump(sink, lambda: listener.published)
        (record,) = world.records(topic)
        assert (record.key(), record.value()) == (key, value)
        assert list(record.headers() or ()) == list(headers)
        assert listener.published == [parcel]

    def test_a_parcel_is_pending_until_it_is_reported(
        self, world: SinkWorld, opened: tuple[Sink, Listener]
    ) -> None:
        """Each is counted and reported exactly once."""
        sink, listener = opened
        topic = world.create_topic()
        parcels = [parcel_of(topic) for _ in range(20)]
        assert sink.pending() == 0
        for parcel in parcels:
            sink.publish(parcel)
        assert sink.pending() + len(listener.published) == 20
        pump(sink, lambda: sink.pending() == 0)
        sink.poll()
        assert listener.published == parcels
        assert listener.failed == []

    def test_the_partition_is_the_parcels(
        self, world: SinkWorld, opened: tuple[Sink, Listener]
    ) -> None:
        """A given partition is kept; without one the key chooses, the same every time."""
        sink, listener = opened
        topic = world.create_topic(4)
        sink.publish(parcel_of(topic, value=b"given", partition=3))
        for _ in range(3):
            sink.publish(parcel_of(topic, value=b"chosen", key=b"ada", partition=None))
        pump(sink, lambda: len(listener.published) == 4)
        records = world.records(topic)
        assert [r.partition() for r in records if r.value() == b"given"] == [3]
        assert len({r.partition() for r in records if r.value() == b"chosen"}) == 1

    def test_a_missing_target_is_a_failed_park(
        self, world: SinkWorld, opened: tuple[Sink, Listener]
    ) -> None:
        """A topic or partition that is not there fails its parcel alone, with the reason."""
        sink, listener = opened
        topic = world.create_topic()
        no_topic, no_partition = parcel_of(world.missing_topic()), parcel_of(topic, partition=7)
        good = parcel_of(topic)
        for parcel in (no_topic, no_partition, good):
            sink.publish(parcel)
        pump(sink, lambda: len(listener.failed) == 2 and listener.published)
        assert listener.published == [good]
        assert {id(parcel) for parcel, _, _ in listener.failed} == {id(no_topic), id(no_partition)}
        assert all(error and not too_large for _, error, too_large in listener.failed)

    def test_a_record_that_is_too_large_is_told_as_such(
        self, world: SinkWorld, opened: tuple[Sink, Listener]
    ) -> None:
        """So that the engine can shed headers; the lighter one goes through."""
        sink, listener = opened
        topic = world.create_topic(most_bytes=20_000)
        heavy = parcel_of(topic, headers=[("stack", INCOMPRESSIBLE)])
        sink.publish(heavy)
        pump(sink, lambda: listener.failed)
        assert listener.failed[0][0] is heavy
        assert listener.failed[0][2]
        heavy.headers = []
        sink.publish(heavy)
        pump(sink, lambda: listener.published)
        assert len(world.records(topic)) == 1

    def test_closing_waits_for_reports(self, world: SinkWorld) -> None:
        """What was published before is reported when close returns; later is refused."""
        sink, listener = world.sink(), Listener()
        sink.open(listener)
        topic = world.create_topic()
        parcel, late = parcel_of(topic), parcel_of(topic)
        sink.publish(parcel)
        sink.close(BOUND_S)
        assert listener.published == [parcel]
        assert sink.pending() == 0
        sink.publish(late)
        sink.poll()
        assert [failed for failed, _, _ in listener.failed] == [late]
        assert len(world.records(topic)) == 1
