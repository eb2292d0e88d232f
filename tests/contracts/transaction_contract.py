"""TransactionContract: what every `ports.TransactionalSink` does, on memory as on Kafka."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator

import pytest

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition, Headers
from ackfloor.ports import TransactionalSink
from tests.contracts.sink_contract import BOUND_S, INCOMPRESSIBLE, SinkWorld, parcel_of
from tests.contracts.source_contract import Listener, SourceWorld
from tests.contracts.source_contract import pump as pump_sources


class TransactionWorld(SourceWorld, SinkWorld):
    """Where a transactional sink writes, and the group in whose name it commits."""

    @abstractmethod
    def transactional_sink(self, group: str) -> TransactionalSink:
        """A sink that is not open; closed at the end of the test."""


class Ends:
    """Notes how transactions ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[Transaction, TransactionOutcome]] = []

    def on_transaction(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        self.ended.append((transaction, outcome))


class Stand:
    """A member of a group with one source topic of two partitions, a target, and an open sink."""

    def __init__(self, world: TransactionWorld) -> None:
        self.world = world
        self.source_topic, self.target = world.create_topic(2), world.create_topic(2)
        self.group = world.new_group()
        self.sink, self.ends = world.transactional_sink(self.group), Ends()
        self.sink.open(self.ends)
        self.source, self.listener = world.source(self.group), Listener()
        self.source.subscribe([self.source_topic], self.listener)
        pump_sources(lambda: self.listener.starts, self.source)

    def transaction(
        self, *parcels: PendingWrite, position: int = 7, metadata: str = "af", partition: int = 0
    ) -> Transaction:
        """A transaction of these parcels that commits one partition."""
        commit = CommitPosition(self.source_topic, partition, position, metadata, 1)
        return Transaction(parcels, (commit,))

    def parcel(self, value: bytes = b"v", headers: Headers = ()) -> PendingWrite:
        """A parcel for the target."""
        return parcel_of(self.target, value=value, headers=headers)

    def carry_out(self, transaction: Transaction) -> TransactionOutcome:
        """Begin a transaction and wait for its end."""
        before = len(self.ends.ended)
        self.sink.transact(transaction, self.source.membership())
        pump(self.sink, lambda: len(self.ends.ended) > before)
        ended, outcome = self.ends.ended[-1]
        assert ended is transaction
        assert self.sink.pending() == 0
        return outcome

    @property
    def values(self) -> list[bytes | None]:
        """What a reader of committed records finds in the target."""
        return [record.value() for record in self.world.records(self.target)]

    @property
    def committed(self) -> tuple[int, str] | None:
        """What the group has committed of the source's first partition."""
        return self.world.committed(self.group, self.source_topic)


def pump(sink: TransactionalSink, done: Callable[[], object]) -> None:
    """Poll a sink until something has come about."""
    end_s = time.monotonic() + BOUND_S
    while not done():
        assert time.monotonic() < end_s, "it did not come about in time"
        sink.poll()
        time.sleep(0.001)


class TransactionContract:
    """Subclass it with a `world` fixture."""

    @pytest.fixture
    def world(self) -> Iterator[TransactionWorld]:
        """Where the sink under test writes."""
        raise NotImplementedError

    @pytest.fixture
    def stand(self, world: TransactionWorld) -> Iterator[Stand]:
        """A member and an open sink; closed after the test."""
        stand = Stand(world)
        yield stand
        stand.sink.close(10.0)

    @pytest.mark.parametrize(
        ("key", "value", "headers"),
        [
            (b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3")]),
            (b"\xff\x00", b"\x00" * 1000, [("not-utf8", b"\xff"), ("null", None), ("", b"")]),
            (None, None, [("tombstone", b"1")]),
        ],
    )
    def test_records_and_commit_are_written_together(
        self, stand: Stand, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """Byte for byte, and the position with its metadata."""
        parcel = parcel_of(stand.target, key=key, value=value, headers=headers)
        assert stand.carry_out(stand.transaction(parcel, parcel_of(stand.target))).committed
        record = stand.world.records(stand.target)[0]
        assert (record.key(), record.value()) == (key, value)
        assert list(record.headers() or ()) == list(headers)
        assert len(stand.values) == 2
        assert stand.committed == (7, "af")

    def test_one_transaction_after_the_other(self, stand: Stand) -> None:
        """Each one's commit replaces the one before."""
        for n in range(3):
            parcels = [stand.parcel(b"%d" % n) for _ in range(n)] or [stand.parcel(b"0")]
            assert stand.carry_out(stand.transaction(*parcels, position=n)).committed
            assert stand.committed == (n, "af")
        assert stand.values == [b"0", b"1", b"2", b"2"]

    def test_one_record_that_is_not_taken_aborts_all(self, stand: Stand) -> None:
        """Neither the others nor the commit are there, and the one at fault is named."""
        bad = parcel_of(stand.world.missing_topic())
        outcome = stand.carry_out(stand.transaction(stand.parcel(), bad, stand.parcel()))
        assert outcome.error
        assert list(outcome.refusals) == [bad]
        assert not outcome.refusals[bad].too_large
        assert (stand.values, stand.committed) == ([], None)
        assert stand.carry_out(stand.transaction(stand.parcel())).committed
        assert (stand.values, stand.committed) == ([b"v"], (7, "af"))

    def test_a_missing_partition_is_a_refusal(self, stand: Stand) -> None:
        """It fails like a missing topic."""
        bad = parcel_of(stand.target, partition=9)
        outcome = stand.carry_out(stand.transaction(bad))
        assert list(outcome.refusals) == [bad]
        assert (stand.values, stand.committed) == ([], None)

    def test_a_record_that_is_too_large_is_told_as_such(
        self, world: TransactionWorld, stand: Stand
    ) -> None:
        """So that the engine can try it alone, and shed headers then."""
        small = world.create_topic(most_bytes=20_000)
        heavy = parcel_of(small, headers=[("stack", INCOMPRESSIBLE)])
        outcome = stand.carry_out(stand.transaction(heavy))
        assert outcome.refusals[heavy].too_large
        assert stand.committed is None
        heavy.headers = []
        assert not stand.carry_out(stand.transaction(heavy)).error

    def test_a_partition_that_has_moved_on_aborts(self, stand: Stand) -> None:
        """A transaction carries the membership of its beginning."""
        before = stand.source.membership()
        other, listener = stand.world.source(stand.group), Listener()
        other.subscribe([stand.source_topic], listener)
        pump_sources(lambda: listener.starts, stand.source, other)
        (theirs,) = {partition for _, partition in listener.starts}
        transaction = stand.transaction(stand.parcel(), partition=theirs)
        stand.sink.transact(transaction, before)
        pump(stand.sink, lambda: stand.ends.ended)
        outcome = stand.ends.ended[0][1]
        assert outcome.error
        assert not outcome.refusals
        assert stand.values == []
        assert stand.world.committed(stand.group, stand.source_topic, theirs) is None

    def test_a_partition_that_has_come_back_aborts(self, stand: Stand) -> None:
        """What began before it was given up must not commit beside what follows."""
        before = stand.source.membership()
        other, listener = stand.world.source(stand.group), Listener()
        other.subscribe([stand.source_topic], listener)
        pump_sources(lambda: listener.starts, stand.source, other)
        (moved,) = {partition for _, partition in listener.starts}
        other.close()
        pump_sources(lambda: len(stand.listener.starts) == 2, stand.source)
        transaction = stand.transaction(stand.parcel(), partition=moved)
        stand.sink.transact(transaction, before)
        pump(stand.sink, lambda: stand.ends.ended)
        assert stand.ends.ended[0][1].error
        assert stand.values == []
        assert stand.carry_out(stand.transaction(stand.parcel(), partition=moved)).committed

    def test_closing_waits_for_the_end(self, stand: Stand) -> None:
        """What was begun before is reported when close returns; later is refused."""
        transaction, late = stand.transaction(stand.parcel()), stand.transaction(stand.parcel())
        stand.sink.transact(transaction, stand.source.membership())
        stand.sink.close(BOUND_S)
        assert [(t, o.committed) for t, o in stand.ends.ended] == [(transaction, True)]
        assert stand.sink.pending() == 0
        stand.sink.transact(late, stand.source.membership())
        stand.sink.poll()
        assert [(t, o.committed) for t, o in stand.ends.ended[1:]] == [(late, False)]
        assert stand.values == [b"v"]
