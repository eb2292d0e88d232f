"""Outbox: writes parked records, and settles them when the broker confirms.

Each is written by itself, or many in a transaction with the commit of their partitions
(`transactional_outbox`). No write is given up: a failed one is retried with a growing backoff, its
record stays open, and it is reported as a fault until it is written, also during the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from ackfloor.core.messages.commands import Publish
from ackfloor.core.messages.events import (
    Event,
    PublishFailed,
    RecordDeadLettered,
    RecordHopped,
    RecordParked,
)
from ackfloor.core.messages.fault_causes import (
    TRANSACTION,
    UNCONFIRMED,
    Identity,
    Trouble,
    identify,
)
from ackfloor.core.outbox.held_outputs import HeldOutputs
from ackfloor.core.outbox.transactional_outbox import Transactions, targets
from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Bury, Park, Verdict
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import AfterDeadLetter, Assignment
from ackfloor.core.state.worker_state import WorkerState

#: Seconds after which a write that is not confirmed is worth a fault.
UNCONFIRMED_S = 5.0
LOOK_INTERVAL_S = 1.0
#: Seconds after which the brokers are asked why a write takes long.
DOUBT_S = 0.3
#: The kind of these faults.
FAULT = "parking"


class Outbox:
    """The writes under way and the refused ones.

    Args:
        transactional: records are written in transactions with the commits of their partitions.
    """

    __slots__ = (
        "_look_s",
        "_outputs",
        "_refused",
        "_state",
        "_unconfirmed",
        "_under_way",
        "_unwritable",
        "sent",
        "transactions",
        "written",
    )

    def __init__(self, state: WorkerState, *, transactional: bool = False) -> None:
        self._state = state
        self.transactions = Transactions(state) if transactional else None
        self._outputs = HeldOutputs(state)
        #: Called when a record of a handler that quarantines is to be written, and when it is;
        #: see `Quarantines`.
        self.sent: Callable[[PendingWrite], None] = lambda *_: None
        self.written: Callable[[PendingWrite, Now], None] = lambda *_: None
        #: Waiting for the next attempt to write them.
        self._refused: list[PendingWrite] = []
        #: Whose report is outstanding, oldest first -> since when (monotonic seconds).
        self._under_way: dict[PendingWrite, float] = {}
        #: Those of them that are in no fault, oldest first -> since when.
        self._unconfirmed: dict[PendingWrite, float] = {}
        #: When to look next for those that have been under way for long.
        self._look_s = 0.0
        #: Topics that nothing can be written to, as the brokers say -> why.
        self._unwritable: dict[str, Trouble] = {}

    def park(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> None:
        """Write a failed record to a tier or to the dead-letter topic."""
        self._publish(self._state.parking.park(delivery, verdict, now), now)

    def hop(self, delivery: TrackedDelivery, now: Now) -> None:
        """Move a tier record that has further to wait to its next tier."""
        self._publish(self._state.parking.hop(delivery, now), now)

    def bury(
        self,
        delivery: TrackedDelivery,
        now: Now,
        reason: Reason = Reason.DEAD_LETTER,
        after: AfterDeadLetter | None = None,
    ) -> None:
        """Move a record to the dead-letter topic, although nothing new has failed."""
        self._publish(self._state.parking.bury(delivery, now, reason, after), now)

    def behind(self, delivery: TrackedDelivery, now: Now) -> None:
        """Write a record to a tier, to wait behind one that failed."""
        self._publish(self._state.parking.behind(delivery, now), now)

    def hold(self, write: PendingWrite, now: Now) -> None:
        """Write a record that was dead-lettered to a tier as well, where it holds its key.

        In transactions both are written together.
        """
        if self.transactions is None:
            self._publish(self._state.parking.held(write, now), now)

    def put_out(self, deliveries: Sequence[TrackedDelivery], now: Now) -> None:
        """Write the outputs of a partition's handled records, each in what settles its record.

        Raises:
            RuntimeError: the outbox writes in no transactions.
        """
        if self.transactions is None:
            raise RuntimeError("outputs are written in transactions, and the outbox has none")
        for write in self._outputs.take(deliveries, now):
            self._publish(write, now)

    def _publish(self, write: PendingWrite, now: Now, *, first: bool = False) -> None:
        write.delivery.assignment.parking += 1
        rules = write.delivery.assignment.handler.rules
        if rules.quarantines and not isinstance(write, OutputWrite):
            self.sent(write)
        self._under_way[write] = now.mono_s
        if self._state.faults.of(FAULT, write) is None:
            self._unconfirmed[write] = now.mono_s
        if self.transactions is not None:
            write.companion = None if write.settles else self._state.parking.held(write, now)
            self.transactions.add(write, first=first)
            return
        self._state.parking.address(write, now)
        self._state.commands.append(Publish(write))

    def published(self, write: PendingWrite, now: Now) -> None:
        """The broker confirmed a write: its record is settled."""
        delivery = write.delivery
        self._forget_write(write)
        if delivery.assignment.closed:
            return
        delivery.assignment.end(delivery)
        if write.late:
            self._state.settle(delivery)
        elif write.settles:
            self.settle(delivery)
        if delivery.assignment.handler.rules.quarantines:
            self.written(write, now)
        self._state.faults.clear(FAULT, write)
        self._state.events.append(_moved(write, now))

    def settle(self, delivery: TrackedDelivery) -> None:
        """A record is settled that was written elsewhere: its lane goes on."""
        self._state.settle(delivery)
        self._state.go_on(delivery)
        # Not left to the next read or answer: while everything is paused there may be none.
        self._state.unbalanced = self._state.flow.any_paused

    def _forget_write(self, write: PendingWrite) -> None:
        """A write was reported, or is no longer waited for."""
        if self._under_way.pop(write, None) is not None:
            write.delivery.assignment.parking -= 1
        self._unconfirmed.pop(write, None)

    def failed(
        self, write: PendingWrite, error: str, *, too_large: bool, now: Now, subject: str = ""
    ) -> None:
        """A write failed: the record stays open, and the write is retried.

        Args:
            subject: the fault's subject, where that is not its topic.
        """
        assignment = write.delivery.assignment
        self._forget_write(write)
        if assignment.closed:
            return
        if isinstance(write, OutputWrite) and too_large and self.transactions is not None:
            self.transactions.rejected(write)
            self._outputs.drop(write)
            self._state.faults.clear(FAULT, write)
            self._publish(self._outputs.reject(write.delivery, error, now), now, first=True)
            return
        if too_large and self._state.parking.lighten(write):
            self._publish(write, now, first=write.late)
            return
        wait_s = self._state.parking.refused(write, now)
        self._await_retry(write, now)
        d = write.delivery
        if not self._name_fault(write, now):
            identity = identify(subject or write.topic, error)
            self._state.faults.wait(FAULT, write, identity, error, now.wall_ms)
        self._state.events.append(
            PublishFailed(
                assignment.source_topic,
                d.partition,
                d.offset,
                assignment.handler.rules.name,
                write.topic if subject in {"", TRANSACTION} else subject,
                error,
                wait_s,
                d.attempt,
                d.topic,
                write.refusals,
            )
        )

    def _await_retry(self, write: PendingWrite, now: Now) -> None:
        """A refused write waits for its next attempt: outputs in their place in the queue."""
        if write.keeps_place and self.transactions is not None:
            self.transactions.refused(write)
            self._under_way[write] = now.mono_s
            write.delivery.assignment.parking += 1
            return
        self._refused.append(write)
        write.delivery.assignment.refused += 1

    def leads_to(self, assignment: Assignment) -> bool:
        """Whether a retry partition may have what holds the key of a dead letter, of which the
        transaction is not known to be committed: what it says of the key comes first."""
        transaction = None if self.transactions is None else self.transactions.under_way
        return transaction is not None and any(
            (write.topic, write.partition) == (assignment.topic, assignment.partition)
            for write in transaction.led
            if not isinstance(write, OutputWrite)
        )

    def transacted(self, transaction: Transaction, outcome: TransactionOutcome, now: Now) -> None:
        """A transaction has ended: all of its records are written, or none is."""
        transactions = self.transactions
        if transactions is None or transaction is not transactions.under_way:
            raise RuntimeError("the end of a transaction that is not under way")
        transactions.transaction_ended(transaction, outcome)
        if outcome.committed:
            self._all_published(transaction, now)
            return
        refused = transaction.refused(outcome)
        innocent = set(transactions.not_at_fault(transaction, refused))
        again: list[PendingWrite] = []
        for write in transaction.queued:
            if write in innocent:
                again.append(write)
                continue
            subject, refusal = refused.get(write, (TRANSACTION, Refusal(outcome.error)))
            error, too_large = refusal
            self.failed(write, error, too_large=too_large, now=now, subject=subject)
            if write in self._under_way and write.retry_at_s > now.mono_s:
                again.append(write)
        here = [write for write in again if not write.delivery.assignment.closed]
        for write in here:
            if write in refused and write in innocent:
                # Too large together: each goes in a transaction of its own now.
                topic, (error, _) = refused[write]
                self._unconfirmed.pop(write, None)
                self._state.faults.wait(FAULT, write, identify(topic, error), error, now.wall_ms)
        transactions.again(here)
        self._forget([write for write in again if write.delivery.assignment.closed])

    def _all_published(self, transaction: Transaction, now: Now) -> None:
        leading = set(transaction.led.values())
        outputs = [write for write in transaction.queued if isinstance(write, OutputWrite)]
        self._forget(outputs)
        self._outputs.written([w for w in outputs if not w.delivery.assignment.closed])
        for write in transaction.writes:
            if isinstance(write, OutputWrite):
                continue
            if write not in leading:
                # Nothing of it is left to be written: its record is settled.
                write.after = "continue"
            self.published(write, now)

    def _forget(self, writes: Iterable[PendingWrite]) -> None:
        """Drop writes that are no longer to be made."""
        for write in writes:
            self._forget_write(write)
            self._state.faults.clear(FAULT, write)

    def forget_closed(self) -> None:
        """Partitions were dropped: their next owner handles the records of refused writes."""
        if self.transactions is not None:
            self._forget(self.transactions.forget_closed())
        for write in (*self._under_way, *self._refused):
            if write.delivery.assignment.closed:
                self._unconfirmed.pop(write, None)
                self._state.faults.clear(FAULT, write)
        self._refused = [p for p in self._refused if not p.delivery.assignment.closed]

    def tick(self, now: Now) -> None:
        """Retry the refused writes that are due, and report those that are not confirmed."""
        if self._unconfirmed and now.mono_s >= self._look_s:
            self._look_s = now.mono_s + LOOK_INTERVAL_S
            self._name_unconfirmed(now)
        if not self._refused:
            return
        due = [p for p in self._refused if p.retry_at_s <= now.mono_s]
        if due:
            self._refused = [p for p in self._refused if p.retry_at_s > now.mono_s]
            for write in due:
                write.delivery.assignment.refused -= 1
                self._publish(write, now)

    def next_s(self) -> float:
        """Monotonic seconds of the next attempt, infinity where none is planned."""
        next_s = min((write.retry_at_s for write in self._refused), default=inf)
        return next_s if self.transactions is None else min(next_s, self.transactions.next_s())

    def _name_unconfirmed(self, now: Now) -> None:
        """Report writes that wait for long: an unreachable broker sends no error."""
        for write, since_s in list(self._unconfirmed.items()):
            waited_s = now.mono_s - since_s
            if waited_s < UNCONFIRMED_S:
                return
            del self._unconfirmed[write]
            identity = Identity(targets(write, self._state.parking, now)[0], UNCONFIRMED)
            since_ms = now.wall_ms - round(waited_s * 1000)
            self._state.faults.wait(FAULT, write, identity, "no broker confirms it", since_ms)

    # Problems that the brokers report.

    def troubled(self, troubles: Mapping[str, Trouble], now: Now) -> None:
        """These topics can't be written: writes to them wait.

        Refused writes to a topic that has recovered are retried now.
        """
        before = self._unwritable
        self._unwritable = {topic: t for topic, t in troubles.items() if t.unwritable}
        if self.transactions is not None:
            self.transactions.troubled(self._unwritable)
        if self._unwritable:
            for write in (*self._under_way, *self._refused):
                if not write.delivery.assignment.closed:
                    self._name_fault(write, now)
        mended = before.keys() - self._unwritable.keys()
        if mended:
            for write in self._refused:
                if not mended.isdisjoint(targets(write, self._state.parking, now)):
                    write.retry_at_s = now.mono_s
            if self.transactions is not None:
                self.transactions.hasten(mended, now)

    def _name_fault(self, write: PendingWrite, now: Now) -> bool:
        """Add a write to its topic's fault, where the brokers report one."""
        for topic in targets(write, self._state.parking, now):
            trouble = self._unwritable.get(topic)
            if trouble is not None:
                self._unconfirmed.pop(write, None)
                identity = Identity(topic, trouble.cause)
                self._state.faults.wait(FAULT, write, identity, trouble.why, now.wall_ms)
                return True
        return False

    def doubtful(self, now: Now) -> bool:
        """Whether a write was refused, or is under way for longer than usual."""
        oldest_s = next(iter(self._under_way.values()), inf)
        return bool(self._refused) or now.mono_s - oldest_s >= DOUBT_S


def _moved(write: PendingWrite, now: Now) -> Event:
    delivery, verdict = write.delivery, write.verdict
    assignment = delivery.assignment
    name = assignment.handler.rules.name
    if isinstance(verdict, Bury):
        return RecordDeadLettered(
            assignment.source_topic,
            assignment.partition,
            delivery.offset,
            name,
            write.envelope.attempt,
            verdict.reason,
            verdict.failure.error_type,
            assignment.topic,
            verdict.by_operator,
        )
    if isinstance(verdict, Park):
        return RecordParked(
            assignment.source_topic,
            assignment.partition,
            delivery.offset,
            name,
            write.envelope.attempt,
            verdict.reason,
            write.topic,
            write.wait_s,
            now.mono_s - write.failed_s,
        )
    return RecordHopped(assignment.source_topic, name, write.topic)
