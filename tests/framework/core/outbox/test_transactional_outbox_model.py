"""Transactional parking against a naive model: nothing is lost, and nothing is parked twice.

The machine of test_engine_model, with a broker that carries transactions out in two steps, as a
real one does: it decides (all of it stored, or nothing), and the worker is told later. Partitions
leave and come back in between, and then start from what the broker has.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from ackfloor.core.acks.gap_set import decode
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Refusal, TransactionOutcome
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.records.record import CommitPosition, StartPosition, TopicPartition
from tests.framework.core.engine.test_engine_model import LIMITS, PARTITIONS, EngineMachine, Key

pytestmark = pytest.mark.usefixtures("without_coverage")

FATES = ["committed", "committed", "aborted", "refused", "too large", "all refused"]


class TransactionalEngineMachine(EngineMachine):
    """Parcels go in transactions."""

    transactional = True

    def gain(self, partition: int) -> None:
        """A partition comes, from what the group has stored: position and gap set."""
        if not self.owned and not hasattr(self, "texts"):
            self.texts = dict.fromkeys(range(PARTITIONS), "")
            #: What the broker has written to a tier or the dead-letter topic.
            self.parked: set[Key] = set()
            #: What it decided of the transaction under way.
            self.decided: TransactionOutcome | None = None
        position = self.stored[partition]
        start = StartPosition("orders", partition, position, metadata=self.texts[partition])
        self.world.engine.assign([start], self.world.now)
        self.world.take()
        self.owned.add(partition)
        self.floors[partition] = position
        self.paused.discard(partition)
        self.next_offset = getattr(self, "next_offset", {}) | {partition: position}

    def store(self, position: CommitPosition) -> None:
        """The broker stores a commit."""
        self.stored[position.partition] = position.position
        self.texts[position.partition] = position.metadata

    def stored_as_settled(self, write: PendingWrite) -> bool:
        """Whether what the broker has stored says that a parcel's record is settled."""
        partition, offset = write.delivery.partition, write.delivery.offset
        if offset < self.stored[partition]:
            return True
        runs = decode(self.texts[partition], "orders", partition).runs
        return any(start <= offset < end for start, end in runs)

    def current(self, position: CommitPosition) -> bool:
        """Whether the member that commits still owns the partition."""
        assignment = self.world.engine.assignments.get(("orders", position.partition))
        return assignment is not None and assignment.epoch == position.epoch

    @precondition(lambda self: self.world.transactions and self.decided is None)
    @rule(fate=st.sampled_from(FATES), data=st.data())
    def decide(self, fate: str, data: st.DataObject) -> None:
        """The broker commits a transaction or aborts it; it refuses an outdated member."""
        transaction = self.world.transactions[0]
        if not all(map(self.current, transaction.positions)):
            fate = "aborted"
        if fate == "committed":
            for write in transaction.writes:
                delivery = write.delivery
                place = (delivery.partition, delivery.offset)
                assert place not in self.parked, "parked twice"
                self.parked.add(place)
                self.note_settled(delivery)
            for position in transaction.positions:
                self.store(position)
            assert all(map(self.stored_as_settled, transaction.writes))
            self.decided = COMMITTED
        elif fate == "aborted":
            self.decided = TransactionOutcome("illegal generation")
        else:
            refused = transaction.writes
            if fate != "all refused":
                refused = (data.draw(st.sampled_from(transaction.writes)),)
            refusal = Refusal("no", too_large=fate == "too large")
            self.decided = TransactionOutcome("no", dict.fromkeys(refused, refusal))

    @precondition(lambda self: self.decided is not None)
    @rule()
    def told(self) -> None:
        """The worker learns how it ended."""
        decided, self.decided = self.decided, None
        assert decided is not None
        self.world.end_transaction(decided)
        self.follow()

    @precondition(lambda self: self.commits)
    @rule(data=st.data(), error=st.sampled_from([None, "REBALANCE_IN_PROGRESS"]))
    def commit_answered(self, data: st.DataObject, error: str | None) -> None:
        """A plain commit is stored and confirmed, or refused, or stored and said to be refused."""
        position: CommitPosition = data.draw(st.sampled_from(self.commits))
        self.commits.remove(position)
        if self.current(position) and (error is None or data.draw(st.booleans())):
            self.store(position)
        self.world.engine.committed([(position, error)], self.world.now)
        self.world.take()
        self.follow()

    @rule(partition=st.integers(0, PARTITIONS - 1), lost=st.booleans())
    def rebalance(self, partition: int, lost: bool) -> None:
        """A partition leaves, in the middle of a transaction too; or it comes back.

        Whoever asks for its commit then waits for the transaction to be decided.
        """
        if partition not in self.owned:
            self.gain(partition)
            return
        key = TopicPartition("orders", partition)
        self.world.engine.stop([key])
        if not lost:
            for final in self.world.engine.final_positions([key]):
                assert not self.world.engine.transacting([key])
                self.store(final)
        self.world.engine.drop([key], lost=lost)
        self.owned.discard(partition)
        self.world.take()
        self.follow()

    def teardown(self) -> None:
        """In the end everything that is open can be handled: nothing is stranded."""
        world = self.world
        self.resume()
        for _ in range(200):
            for position in self.commits:
                world.engine.committed([(position, None)], world.now)
            self.commits.clear()
            while world.ready and len(self.running) < 4:
                self.start()
            for delivery, run in self.running:
                if not delivery.closed:
                    self.note_settled(delivery)
                world.finish(delivery, ACKED)
                if run is not None:
                    self.go_on_with(run)
            self.running.clear()
            if world.transactions:
                if self.decided is None:
                    self.decide.__wrapped__(self, "committed", None)  # type: ignore[attr-defined]
                self.told.__wrapped__(self)  # type: ignore[attr-defined]
            self.time_passes(20.0)
            if not world.engine.flow.open_count:
                assert not any(a.parking for a in world.engine.assignments.values())
                return
        raise AssertionError(f"{world.engine.flow.open_count} records are stranded")

    @invariant()
    def gap_sets_hold_nothing_unsettled(self) -> None:
        """Invariant 1 for what is above the floor, also while the worker does not know yet."""
        for partition, text in self.texts.items():
            if not text:
                continue
            runs = decode(text, "orders", partition).runs
            for p, offset in self.delivered - self.settled:
                assert p != partition or not any(a <= offset < b for a, b in runs)

    @invariant()
    def one_lane(self) -> None:
        """No plain commit crosses a transaction (rule 2)."""
        for transaction in self.world.transactions:
            for position in filter(self.current, transaction.positions):
                lane = [c for c in self.commits if self.current(c)]
                assert position.partition not in {c.partition for c in lane}


class TransactionalKeyedEngineMachine(TransactionalEngineMachine):
    """The same in key order."""

    ordering = "key"


class TransactionalBlockedEngineMachine(TransactionalKeyedEngineMachine):
    """The same with a failed record that holds its key until its dead letter is written."""

    in_place = True


@pytest.mark.parametrize(
    "machine",
    [
        TransactionalEngineMachine,
        TransactionalKeyedEngineMachine,
        TransactionalBlockedEngineMachine,
    ],
    ids=["unordered", "key", "key, blocked"],
)
def test_invariants_hold(machine: type[EngineMachine]) -> None:
    """No interleaving loses a record, parks one twice, or strands one."""
    run_state_machine_as_test(machine, settings=LIMITS)
