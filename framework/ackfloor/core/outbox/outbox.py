"""Outbox: publishing what is parked, and settling it once that is confirmed.

Each goes by itself, or many go in a transaction with the commit of their partitions
(`transactional_outbox`). Nothing here gives up. A write that failed is planned again with a growing
backoff, its record stays open, and it is named as a fault until it is written, also while it is
under way again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from ackfloor.core.outbox.transactional_outbox import Transactions
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Outcome, Refusal, Transaction
from ackfloor.core.records.outcomes import Bury, Park, Verdict
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.worker_state import WorkerState

#: Seconds after which a write that is not confirmed is worth a fault.
UNCONFIRMED_S = 5.0
LOOK_INTERVAL_S = 1.0
#: Seconds after which the brokers are asked whether something is the matter.
DOUBT_S = 0.3
#: The kind of these faults.
FAULT = "parking"


class Outbox:
    """The parcels under way and the refused ones.

    Args:
        transactional: parcels are written in transactions with the commits of their partitions.
    """

    __slots__ = (
        "_look_s",
        "_refused",
        "_silent",
        "_state",
        "_under_way",
        "_unwritable",
        "transactions",
    )

    def __init__(self, state: WorkerState, *, transactional: bool = False) -> None:
        self._state = state
        self.transactions = Transactions(state) if transactional else None
        #: Waiting for the next attempt to write them.
        self._refused: list[PendingWrite] = []
        #: Whose report is outstanding, oldest first -> since when (monotonic seconds).
        self._under_way: dict[PendingWrite, float] = {}
        #: Those of them that are in no fault, oldest first -> since when.
        self._silent: dict[PendingWrite, float] = {}
        #: When to look next for those that have been under way for long.
        self._look_s = 0.0
        #: Topics that nothing can be written to, as the brokers say -> why.
        self._unwritable: dict[str, Trouble] = {}

    def park(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> None:
        """Write a failed record to a tier or to the dead-letter topic."""
        self._publish(self._state.parking.parcel(delivery, verdict, now), now)

    def hop(self, delivery: TrackedDelivery, now: Now) -> None:
        """Move a tier record that has further to wait to its next tier."""
        self._publish(self._state.parking.hop(delivery, now), now)

    def bury(self, delivery: TrackedDelivery, now: Now) -> None:
        """Move a tier record to the dead-letter topic, although nothing new has failed."""
        self._publish(self._state.parking.bury(delivery, now), now)

    def _publish(self, parcel: PendingWrite, now: Now) -> None:
        parcel.delivery.assignment.parking += 1
        self._under_way[parcel] = now.mono_s
        if self._state.faults.of(FAULT, parcel) is None:
            self._silent[parcel] = now.mono_s
        if self.transactions is not None:
            self.transactions.add(parcel)
            return
        self._state.parking.address(parcel, now)
        self._state.commands.append(Publish(parcel))

    def published(self, parcel: PendingWrite, now: Now) -> None:
        """The broker confirmed a parcel: its record is settled."""
        delivery = parcel.delivery
        self._landed(parcel)
        if delivery.assignment.closed:
            return
        delivery.assignment.end(delivery)
        self._state.settle(delivery)
        self._state.go_on(delivery)
        # Not left to the next read or answer: while everything is paused there may be none.
        self._state.unbalanced = self._state.flow.any_paused
        self._state.faults.clear(FAULT, parcel)
        self._state.events.append(_moved(parcel, now))

    def _landed(self, parcel: PendingWrite) -> None:
        """There is a report of a parcel, or nobody waits for one."""
        parcel.delivery.assignment.parking -= 1
        self._under_way.pop(parcel, None)
        self._silent.pop(parcel, None)

    def failed(
        self, parcel: PendingWrite, error: str, *, too_large: bool, now: Now, subject: str = ""
    ) -> None:
        """A parcel was not written: the record stays open and is tried again.

        Args:
            subject: what it failed for, where that is not its topic.
        """
        assignment = parcel.delivery.assignment
        self._landed(parcel)
        if assignment.closed:
            return
        if too_large and self._state.parking.lighten(parcel):
            self._publish(parcel, now)
            return
        wait_s = self._state.parking.refused(parcel, now)
        self._refused.append(parcel)
        assignment.refused += 1
        d = parcel.delivery
        if parcel.topic in self._unwritable:
            self._blame(parcel, now)
        else:
            identity = identify(subject or parcel.topic, error)
            self._state.faults.wait(FAULT, parcel, identity, error, now.wall_ms)
        self._state.events.append(
            PublishFailed(
                assignment.source_topic,
                d.partition,
                d.offset,
                assignment.handler.rules.name,
                parcel.topic,
                error,
                wait_s,
                d.attempt,
                d.topic,
                parcel.refusals,
            )
        )

    def transacted(self, transaction: Transaction, outcome: Outcome, now: Now) -> None:
        """A transaction is over: all of its parcels are written, or none is."""
        transactions = self.transactions
        if transactions is None or transaction is not transactions.under_way:
            raise RuntimeError("the end of a transaction that is not under way")
        transactions.ended(transaction, outcome)
        if outcome.committed:
            for parcel in transaction.parcels:
                self.published(parcel, now)
            return
        again = transactions.not_at_fault(transaction, outcome)
        innocent = set(again)
        for parcel in transaction.parcels:
            if parcel in innocent:
                continue
            refusal = outcome.refusals.get(parcel)
            error, too_large = refusal or Refusal(outcome.error)
            subject = "" if refusal else TRANSACTION
            self.failed(parcel, error, too_large=too_large, now=now, subject=subject)
        here = [parcel for parcel in again if not parcel.delivery.assignment.closed]
        for parcel in here:
            if (refusal := outcome.refusals.get(parcel)) is not None:
                # For its size, in company: each goes alone now, which takes its time.
                self._silent.pop(parcel, None)
                identity = identify(parcel.topic, refusal.error)
                self._state.faults.wait(FAULT, parcel, identity, refusal.error, now.wall_ms)
        transactions.again(here)
        self._forget([parcel for parcel in again if parcel.delivery.assignment.closed])

    def _forget(self, parcels: Iterable[PendingWrite]) -> None:
        """Parcels are not to be written any more."""
        for parcel in parcels:
            self._landed(parcel)
            self._state.faults.clear(FAULT, parcel)

    def forget_closed(self) -> None:
        """Partitions were dropped: their refused parcels are the next owner's business."""
        if self.transactions is not None:
            self._forget(self.transactions.forget_closed())
        for parcel in (*self._under_way, *self._refused):
            if parcel.delivery.assignment.closed:
                self._silent.pop(parcel, None)
                self._state.faults.clear(FAULT, parcel)
        self._refused = [p for p in self._refused if not p.delivery.assignment.closed]

    def tick(self, now: Now) -> None:
        """Publish again what was refused and is due, and name what nobody answers."""
        if self._silent and now.mono_s >= self._look_s:
            self._look_s = now.mono_s + LOOK_INTERVAL_S
            self._name_unconfirmed(now)
        if not self._refused:
            return
        due = [p for p in self._refused if p.retry_at_s <= now.mono_s]
        if due:
            self._refused = [p for p in self._refused if p.retry_at_s > now.mono_s]
            for parcel in due:
                parcel.delivery.assignment.refused -= 1
                self._publish(parcel, now)

    def next_s(self) -> float:
        """Monotonic seconds of the next attempt, infinity where none is planned."""
        return min((parcel.retry_at_s for parcel in self._refused), default=inf)

    def _name_unconfirmed(self, now: Now) -> None:
        """A broker that is away says nothing at all: name what has waited for it for long."""
        for parcel, since_s in list(self._silent.items()):
            waited_s = now.mono_s - since_s
            if waited_s < UNCONFIRMED_S:
                return
            del self._silent[parcel]
            identity = Identity(self._target(parcel, now), UNCONFIRMED)
            since_ms = now.wall_ms - round(waited_s * 1000)
            self._state.faults.wait(FAULT, parcel, identity, "no broker confirms it", since_ms)

    def _target(self, parcel: PendingWrite, now: Now) -> str:
        """Where a parcel goes; one that waits for its transaction was perhaps not told yet."""
        if not parcel.topic:
            self._state.parking.address(parcel, now)
        return parcel.topic

    # What the brokers say of topics.

    def troubled(self, troubles: Mapping[str, Trouble], now: Now) -> None:
        """These topics can't be written: what goes there waits for that, reported or not.

        What was refused by one that can be written again is written now.
        """
        before = self._unwritable
        self._unwritable = {topic: t for topic, t in troubles.items() if t.unwritable}
        if self.transactions is not None:
            self.transactions.troubled(self._unwritable)
        if self._unwritable:
            for parcel in (*self._under_way, *self._refused):
                if not parcel.delivery.assignment.closed:
                    self._blame(parcel, now)
        mended = before.keys() - self._unwritable.keys()
        if mended:
            for parcel in self._refused:
                if parcel.topic in mended:
                    parcel.retry_at_s = now.mono_s

    def _blame(self, parcel: PendingWrite, now: Now) -> None:
        """Count a parcel to the fault of its topic, where the brokers know of one."""
        topic = self._target(parcel, now)
        trouble = self._unwritable.get(topic)
        if trouble is not None:
            self._silent.pop(parcel, None)
            identity = Identity(topic, trouble.cause)
            self._state.faults.wait(FAULT, parcel, identity, trouble.why, now.wall_ms)

    def doubtful(self, now: Now) -> bool:
        """Whether something was refused, or is under way for longer than usual."""
        oldest_s = next(iter(self._under_way.values()), inf)
        return bool(self._refused) or now.mono_s - oldest_s >= DOUBT_S


def _moved(parcel: PendingWrite, now: Now) -> Event:
    delivery, verdict = parcel.delivery, parcel.verdict
    assignment = delivery.assignment
    name = assignment.handler.rules.name
    if isinstance(verdict, Bury):
        return RecordDeadLettered(
            assignment.source_topic,
            assignment.partition,
            delivery.offset,
            name,
            parcel.envelope.attempt,
            verdict.reason,
            verdict.failure.error_type,
            assignment.topic,
        )
    if isinstance(verdict, Park):
        return RecordParked(
            assignment.source_topic,
            assignment.partition,
            delivery.offset,
            name,
            parcel.envelope.attempt,
            verdict.reason,
            parcel.topic,
            parcel.wait_s,
            now.mono_s - parcel.failed_s,
        )
    return RecordHopped(assignment.source_topic, name, parcel.topic)
