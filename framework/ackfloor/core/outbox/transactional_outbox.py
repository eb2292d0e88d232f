"""Transactions: parking in which the parcel and the ack of its record are one write.

Theory. A parcel that is confirmed and a commit that does not come make a doubled record after a
crash. Here both are in one Kafka transaction, so there is no instant between them. A transaction
takes what has gathered while the one before it ran: parcels of many partitions, and for each of
these partitions the commit as it will be once they are written.

T1  One transaction at a time. What it commits is worked out when it begins, and its records are
    settled when it is known to be committed, not before.
T2  A partition has one commit lane (see `commits`), and a transaction takes it like any commit:
    Kafka lets a plain commit that is sent meanwhile undo the transaction's. So a parcel waits
    while a plain commit of its partition is outstanding, or came back without a clear answer.
T3  A parcel goes only if the commit says that its record is settled. Where a gap set is too long
    to be stored whole, the parcels beyond its end wait until the floor is nearer.
    So does one to a topic that the brokers say can't be written: it would hold up all the others
    until the client gives it up.
T4  One parcel that can't be written aborts all. Those it was not the fault of go again at once;
    a topic that refused one goes in transactions of its own until it takes one, and a record
    that was refused for its size goes alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Refusal, Transact, Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition, Now
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.state.commit_schedule import METADATA_TOO_LARGE, foreseen
from ackfloor.core.state.worker_state import WorkerState

#: Parcels of one transaction.
MOST_WRITES = 500
#: Bytes of their values: ten seconds is all the time that a transaction has.
MOST_BYTES = 32 * 1024 * 1024
#: Seconds until parcels that no commit could carry are looked at again.
LOOK_AGAIN_S = 0.5


class Transactions:
    """The parcels that wait for a transaction, and the one transaction under way."""

    __slots__ = (
        "_oversized",
        "_queue",
        "_state",
        "_suspects",
        "_too_far",
        "_unwritable",
        "under_way",
    )

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._queue: deque[PendingWrite] = deque()
        #: Refused for their size in company.
        self._oversized: set[PendingWrite] = set()
        #: Topics that refused a parcel, and have taken none since.
        self._suspects: set[str] = set()
        #: Partitions with parcels that no commit can carry now -> when to look again.
        self._too_far: dict[Assignment, float] = {}
        self.under_way: Transaction | None = None
        #: Topics that nothing can be written to, as the brokers say.
        self._unwritable: Mapping[str, Trouble] = {}

    def troubled(self, unwritable: Mapping[str, Trouble]) -> None:
        """These topics can't be written now: what is under way there is given up."""
        self._unwritable = unwritable
        if self.under_way is not None and unwritable:
            for write in self.under_way.writes:
                if write.topic in unwritable:
                    self.under_way.hopeless[write] = Refusal(unwritable[write.topic].why)

    def add(self, write: PendingWrite) -> None:
        """A parcel is to be written."""
        self._queue.append(write)

    def again(self, writes: Iterable[PendingWrite]) -> None:
        """Parcels of an aborted transaction that it was not the fault of: they go first."""
        self._queue.extendleft(reversed(list(writes)))

    def forget_closed(self) -> list[PendingWrite]:
        """Partitions were dropped: their parcels don't begin; returns those that waited."""
        forgotten = [p for p in self._queue if p.delivery.assignment.closed]
        if forgotten:
            self._queue = deque(p for p in self._queue if not p.delivery.assignment.closed)
        self._oversized = {p for p in self._oversized if not p.delivery.assignment.closed}
        self._too_far = {a: at_s for a, at_s in self._too_far.items() if not a.closed}
        return forgotten

    def begin(self, now: Now) -> None:
        """Begin a transaction if there is something to write and none is under way."""
        if self.under_way is not None or not self._queue:
            return
        writes, positions = self._carried(self._chosen(now), now)
        if not writes:
            return
        for write in writes:
            # Only now: the wait begins with the writing, however long it took to come to that.
            self._state.parking.address(write, now)
            assignment = write.delivery.assignment
            assignment.commit.outstanding = assignment.commit.transacting = True
            assignment.commit.sent_s = now.mono_s
        self.under_way = Transaction(tuple(writes), tuple(positions))
        self._state.commands.append(Transact(self.under_way))

    def _chosen(self, now: Now) -> list[PendingWrite]:
        """Take what may go together, as much as fits, oldest first."""
        queue = self._queue
        chosen: list[PendingWrite] = []
        passed_over: list[PendingWrite] = []
        chosen_group, size = "", 0
        while queue and len(chosen) < MOST_WRITES:
            write = queue.popleft()
            group = self._group(write, now)
            if not self._may_go(write, now) or (chosen and group != chosen_group):
                passed_over.append(write)
                continue
            if chosen and size + write.delivery.size > MOST_BYTES:
                queue.appendleft(write)
                break
            chosen_group = group
            chosen.append(write)
            size += write.delivery.size
            if write in self._oversized:
                break
        queue.extendleft(reversed(passed_over))
        return chosen

    def _group(self, write: PendingWrite, now: Now) -> str:
        """Which parcels a parcel may go with: those of which this is the same."""
        if write in self._oversized:
            return f"alone {id(write)}"
        if not self._suspects:
            return ""
        if not write.topic:
            self._state.parking.address(write, now)
        return write.topic if write.topic in self._suspects else ""

    def _may_go(self, write: PendingWrite, now: Now) -> bool:
        assignment = write.delivery.assignment
        if assignment.commit.outstanding or assignment.commit.in_doubt:
            return False
        if self._unwritable:
            if not write.topic:
                self._state.parking.address(write, now)
            if write.topic in self._unwritable:
                return False
        return self._too_far.get(assignment, 0.0) <= now.mono_s

    def _carried(
        self, chosen: Sequence[PendingWrite], now: Now
    ) -> tuple[list[PendingWrite], list[CommitPosition]]:
        """The commits that these parcels come with, and the parcels that they can carry."""
        offsets: dict[Assignment, set[int]] = {}
        for write in chosen:
            delivery = write.delivery
            offsets.setdefault(delivery.assignment, set()).add(delivery.record_offset)
        positions: list[CommitPosition] = []
        ends: dict[Assignment, int] = {}
        for assignment, settling in offsets.items():
            if assignment.orphaned:
                # There is no log any more to commit a position of.
                ends[assignment] = assignment.tracker.position
                continue
            position, ends[assignment] = foreseen(assignment, settling)
            if min(settling) < ends[assignment]:
                positions.append(position)
            if max(settling) >= ends[assignment]:
                self._too_far[assignment] = now.mono_s + LOOK_AGAIN_S
            else:
                self._too_far.pop(assignment, None)
        carried: list[PendingWrite] = []
        left: list[PendingWrite] = []
        for write in chosen:
            delivery = write.delivery
            fits = delivery.record_offset < ends[delivery.assignment]
            (carried if fits else left).append(write)
        self.again(left)
        return carried, positions

    def transaction_ended(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        """The transaction under way is over: its lanes are free again."""
        self.under_way = None
        state = self._state
        for position in transaction.positions:
            assignment = state.assignments.get((position.topic, position.partition))
            if assignment is None or assignment.epoch != position.epoch:
                continue
            assignment.commit.outstanding = assignment.commit.transacting = False
            state.faults.clear("commit", (position.topic, position.partition))
        if outcome.committed:
            for write in transaction.writes:
                self._suspects.discard(write.topic)
                self._oversized.discard(write)
            return
        if outcome.error.startswith(METADATA_TOO_LARGE):
            self._shorten(transaction)
        several = len(transaction.writes) > 1
        for write in outcome.refusals or transaction.writes:
            refusal = outcome.refusals.get(write)
            if refusal is None or not refusal.too_large:
                self._suspects.add(write.topic)
            elif several:
                self._oversized.add(write)

    def _shorten(self, transaction: Transaction) -> None:
        """The broker takes less metadata than the longest of a transaction's commits has."""
        longest = max(transaction.positions, key=lambda position: len(position.metadata))
        assignment = self._state.assignments.get((longest.topic, longest.partition))
        if assignment is not None:
            assignment.commit.limit_metadata(len(longest.metadata) // 2)

    def not_at_fault(
        self, transaction: Transaction, outcome: TransactionOutcome
    ) -> list[PendingWrite]:
        """Parcels of an aborted transaction that nothing was found wrong with.

        A record that was refused for its size in company counts among them: a broker refuses the
        batch it came in as a whole.
        """
        if not outcome.refusals:
            return []
        several = len(transaction.writes) > 1
        return [
            write
            for write in transaction.writes
            if (refusal := outcome.refusals.get(write)) is None or (refusal.too_large and several)
        ]
