"""Parcels: publishing what is parked, and settling it once that is confirmed.

Each goes by itself, or many go in a transaction with the commit of their partitions
(`transactions`). Nothing here gives up. A write that failed is planned again with a growing
backoff, its record stays open, and it is named as a fault until it is written, also while it is
under way again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import inf

from ackfloor.core.delivery import Delivery
from ackfloor.core.faults import MOST
from ackfloor.core.messages import (
    Event,
    Publish,
    PublishFailed,
    RecordDeadLettered,
    RecordHopped,
    RecordParked,
)
from ackfloor.core.model import Now
from ackfloor.core.outcomes import Bury, Park, Verdict
from ackfloor.core.parcel import Parcel
from ackfloor.core.state import WorkerState
from ackfloor.core.transaction import Outcome, Refusal, Transaction
from ackfloor.core.transactions import Transactions

#: Seconds after which a write that is not confirmed is worth a fault.
UNCONFIRMED_S = 5.0
LOOK_INTERVAL_S = 1.0


class Parcels:
    """The parcels under way and the refused ones.

    Args:
        transactional: parcels are written in transactions with the commits of their partitions.
    """

    __slots__ = ("_look_s", "_refused", "_state", "_troubled", "_under_way", "transactions")

    def __init__(self, state: WorkerState, *, transactional: bool = False) -> None:
        self._state = state
        self.transactions = Transactions(state) if transactional else None
        #: Waiting for the next attempt to write them.
        self._refused: list[Parcel] = []
        #: Whose report is outstanding, oldest first -> since when (monotonic seconds).
        self._under_way: dict[Parcel, float] = {}
        #: When to look next for those that have been under way for long.
        self._look_s = 0.0
        #: Refused or long unconfirmed, and not written yet -> why, and since when (ms).
        self._troubled: dict[Parcel, tuple[str, int]] = {}

    def park(self, delivery: Delivery, verdict: Verdict, now: Now) -> None:
        """Write a failed record to a tier or to the dead-letter topic."""
        self._publish(self._state.parking.parcel(delivery, verdict, now), now)

    def hop(self, delivery: Delivery, now: Now) -> None:
        """Move a tier record that has further to wait to its next tier."""
        self._publish(self._state.parking.hop(delivery, now), now)

    def bury(self, delivery: Delivery, now: Now) -> None:
        """Move a tier record to the dead-letter topic, although nothing new has failed."""
        self._publish(self._state.parking.bury(delivery, now), now)

    def _publish(self, parcel: Parcel, now: Now) -> None:
        parcel.delivery.assignment.parking += 1
        self._under_way[parcel] = now.mono_s
        if self.transactions is not None:
            self.transactions.add(parcel)
            return
        self._state.parking.address(parcel, now)
        self._state.commands.append(Publish(parcel))

    def published(self, parcel: Parcel, now: Now) -> None:
        """The broker confirmed a parcel: its record is settled."""
        delivery = parcel.delivery
        delivery.assignment.parking -= 1
        self._under_way.pop(parcel, None)
        if delivery.assignment.closed:
            return
        delivery.closed = True
        self._state.settle(delivery)
        self._state.go_on(delivery, settled=True)
        # Not left to the next read or answer: while everything is paused there may be none.
        self._state.unbalanced = self._state.flow.any_paused
        self._out_of_trouble(parcel)
        self._state.events.append(_moved(parcel, now))

    def failed(self, parcel: Parcel, error: str, *, too_large: bool, now: Now) -> None:
        """A parcel was not written: the record stays open and is tried again."""
        assignment = parcel.delivery.assignment
        assignment.parking -= 1
        self._under_way.pop(parcel, None)
        if assignment.closed:
            return
        if too_large and self._state.parking.lighten(parcel):
            self._publish(parcel, now)
            return
        wait_s = self._state.parking.refused(parcel, now)
        self._refused.append(parcel)
        d = parcel.delivery
        _, since_ms = self._troubled.get(parcel, ("", now.wall_ms))
        self._troubled[parcel] = (f"to {parcel.topic}: {error}", since_ms)
        self._name(parcel)
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
            error, too_large = outcome.refusals.get(parcel, Refusal(outcome.error))
            self.failed(parcel, error, too_large=too_large, now=now)
        transactions.again(parcel for parcel in again if not parcel.delivery.assignment.closed)
        self._forget([parcel for parcel in again if parcel.delivery.assignment.closed])

    def _forget(self, parcels: Iterable[Parcel]) -> None:
        """Parcels are not to be written any more."""
        for parcel in parcels:
            parcel.delivery.assignment.parking -= 1
            self._under_way.pop(parcel, None)

    def forget_closed(self) -> None:
        """Partitions were dropped: their refused parcels are the next owner's business."""
        if self.transactions is not None:
            self._forget(self.transactions.forget_closed())
        for parcel in [p for p in self._troubled if p.delivery.assignment.closed]:
            self._out_of_trouble(parcel)
        self._refused = [p for p in self._refused if not p.delivery.assignment.closed]

    def tick(self, now: Now) -> None:
        """Publish again what was refused and is due, and name what nobody answers."""
        if self._under_way and now.mono_s >= self._look_s:
            self._look_s = now.mono_s + LOOK_INTERVAL_S
            self._name_unconfirmed(now)
        if not self._refused:
            return
        due = [p for p in self._refused if p.retry_at_s <= now.mono_s]
        if due:
            self._refused = [p for p in self._refused if p.retry_at_s > now.mono_s]
            for parcel in due:
                self._publish(parcel, now)

    def next_s(self) -> float:
        """Monotonic seconds of the next attempt, infinity where none is planned."""
        return min((parcel.retry_at_s for parcel in self._refused), default=inf)

    def _name_unconfirmed(self, now: Now) -> None:
        """A broker that is away says nothing at all: name what waits for it, some of it."""
        for parcel, since_s in islice(self._under_way.items(), MOST):
            waited_s = now.mono_s - since_s
            if waited_s < UNCONFIRMED_S:
                return
            if not parcel.delivery.assignment.closed:
                _, since_ms = self._troubled.get(parcel, ("", now.wall_ms - round(waited_s * 1000)))
                why = f"to {parcel.topic}: not confirmed for {waited_s:.0f} s"
                self._troubled[parcel] = (why, since_ms)
                self._name(parcel)

    def _name(self, parcel: Parcel) -> None:
        message, since_ms = self._troubled[parcel]
        self._state.faults.put("parking", _subject(parcel), message, since_ms)

    def _out_of_trouble(self, parcel: Parcel) -> None:
        """Written, or no longer ours: what was said of it ends."""
        if self._troubled.pop(parcel, None) is None:
            return
        faults = self._state.faults
        faults.clear("parking", _subject(parcel))
        if self._troubled and not faults.any("parking"):
            # Only so many are named at once; as long as there is one, one is named.
            self._name(next(iter(self._troubled)))


def _subject(parcel: Parcel) -> str:
    d = parcel.delivery
    return f"{d.topic}/{d.partition}/{d.offset}"


def _moved(parcel: Parcel, now: Now) -> Event:
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
