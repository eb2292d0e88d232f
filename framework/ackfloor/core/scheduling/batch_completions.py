"""Batches: how the calls of a batch handler end, and when their lanes are free again.

Theory. The slot says how the call ended, and the owner thread, which is the only one to end a
delivery, gives that outcome to each item that nobody has answered. An item that was answered by
hand has ended before, like any delivery under manual ack. A call that raises does not say which
item failed. So those without an answer are tried alone, where they are, at once, and without
spending an attempt: what fails then has failed by itself. What failed is judged item by item: each
is parked, or planned again in its place, and comes back alone.

A lane is free when every item of it has ended, and not with the first: an item that was answered
`retry` would otherwise be delivered again while the same call is still at its lane. So in lanes
failures wait until the batch is over. Then what stays in the lane goes back to its head, in offset
order: redeliveries with their due times, and what is on its way to the dead-letter topic. The
first of these blocks the lane, and each next one when it has become the head.

A batch that fails as a whole counts as one failing record for the circuit breaker: one bad record
is enough to fail it.

Invariants (tests/framework/core/scheduling/test_batch_completions.py, test_batches_model.py):

C1  every item of a batch ends once: by hand, with the call, at the deadline, or with its partition.
C2  the next delivery of an item that failed in a batch, or whose process died, is alone.
C3  no record of a lane is started while a batch holds one before it, nor, where failures are
    retried in place, before that one is settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TypeVar

from ackfloor.core.messages.events import BatchFailed
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.parking.parking import source_envelope
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import APART, Apart, Failed, Outcome, Park, Paused, Rejected
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.breaker_control import Breakers
from ackfloor.core.scheduling.retry_in_place import InPlace
from ackfloor.core.scheduling.withheld import Withheld, is_no_sign
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState

T = TypeVar("T")


class Batches:
    """From the end of a call to the ends of its items."""

    __slots__ = ("_breakers", "_in_place", "_lingering", "_outbox", "_state", "_withheld")

    def __init__(
        self,
        state: WorkerState,
        outbox: Outbox,
        in_place: InPlace,
        breakers: Breakers,
        withheld: Withheld,
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._in_place = in_place
        self._breakers = breakers
        self._withheld = withheld
        #: Batches whose calls have returned while a manual answer is outstanding.
        self._lingering: list[tuple[HandlerState, Batch]] = []

    def call_ended(self, batch: Batch, now: Now) -> list[TrackedDelivery]:
        """A call has returned or was abandoned; returns the items that end with it, outcome set."""
        outcome = self._of_the_items(batch, now)
        if outcome is None:
            return []
        if isinstance(outcome, Failed | Rejected) and batch.failure is None:
            batch.failure = outcome
        ended: list[TrackedDelivery] = []
        again, finished_s = isinstance(outcome, Paused | Apart), batch.finished_s
        for delivery in batch.items:
            if delivery.outcome is not None:
                continue
            if not delivery.closed:
                if not delivery.claim():
                    continue
                if again:
                    delivery.outcome = outcome
                    self._pause(delivery, batch)
                    continue
                delivery.finished_s = finished_s
            delivery.outcome = outcome
            ended.append(delivery)
        return ended

    def _of_the_items(self, batch: Batch, now: Now) -> Outcome | None:
        """The outcome of a call for those of its items that were not answered."""
        outcome = batch.outcome
        if not isinstance(outcome, Failed | Rejected):
            return outcome
        open_ = [d for d in batch.items if d.outcome is None and not d.closed]
        timed_out = outcome.reason is Reason.TIMEOUT
        if len(open_) < 2 or timed_out or is_no_sign(open_[0], outcome):
            return outcome
        first, failure = open_[0], outcome.failure
        first.finished_s = batch.finished_s
        self._breakers.failed(first, outcome, now)
        self._state.events.append(
            BatchFailed(
                first.assignment.source_topic,
                first.assignment.handler.rules.name,
                len(open_),
                failure.error_type,
                failure.message,
            )
        )
        return APART

    def _pause(self, delivery: TrackedDelivery, batch: Batch) -> None:
        """Plan the same attempt at an item again: the call's outcome does not count for it."""
        delivery.assignment.end(delivery)
        batch.paused.append(delivery)

    def failed(self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now) -> None:
        """An item failed: judge it, in a lane when the batch is over."""
        rules = delivery.assignment.handler.rules
        if rules.ordering != "unordered":
            delivery.batch.failed.append((delivery, outcome))
            return
        self._count(delivery, outcome, now)
        verdict = self._withheld.verdict(delivery, outcome, now)
        if verdict is None:
            self._withheld.withhold(delivery, outcome, now)
        elif rules.in_place:
            self._in_place.failed(delivery, verdict, now)
        else:
            self._outbox.park(delivery, verdict, now)

    def _count(self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now) -> None:
        """Report a failure to the circuit breaker, that of a whole call once."""
        batch = delivery.batch
        if outcome is batch.failure:
            if batch.counted:
                return
            batch.counted = True
        self._breakers.failed(delivery, outcome, now)

    def resume_lanes(self, handler: HandlerState, batch: Batch, now: Now) -> None:
        """A call is over: free its lanes as soon as all of its items have ended."""
        if batch.over:
            return
        if handler.rules.ordering == "unordered":
            batch.over = True
            self._put_back_loose(handler, batch.paused)
            return
        if not batch.closed():
            self._lingering.append((handler, batch))
            return
        batch.over = True
        failed = _by_lane((item[0], item) for item in batch.failed)
        paused = _by_lane((delivery, delivery) for delivery in batch.paused)
        for lane in batch.lanes:
            stays = [self._again(delivery) for delivery in paused.get(id(lane), ())]
            stays += [self._judge(*item, now) for item in failed.get(id(lane), ())]
            first = sorted([d for d in stays if d is not None], key=_offset)
            self._state.hand_out(handler, handler.lanes.put_back(lane, batch, first))

    def _put_back_loose(self, handler: HandlerState, paused: Iterable[TrackedDelivery]) -> None:
        again = [d for d in map(self._again, paused) if d is not None]
        handler.queue.put(again, ahead=True)

    def _again(self, delivery: TrackedDelivery) -> TrackedDelivery | None:
        """The same attempt once more; None where its partition is about to leave."""
        if delivery.assignment.stopping:
            return None
        again = delivery.again(delivery.envelope)
        delivery.assignment.tracker.replace(delivery.record_offset, again)
        if again.envelope is not None:
            delivery.assignment.handler.redelivers(again)
        elif delivery.outcome is APART:
            # A delivery with an envelope is handled alone. An empty one leaves it a first attempt.
            again.envelope = source_envelope(delivery)
        return again

    def _judge(
        self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now
    ) -> TrackedDelivery | None:
        """What stays in the lane of a failed item: its next delivery, or itself while it is
        written to the dead-letter topic."""
        assignment = delivery.assignment
        handler, rules = assignment.handler, assignment.handler.rules
        if assignment.closed:
            return None
        self._count(delivery, outcome, now)
        verdict = self._withheld.verdict(delivery, outcome, now)
        if verdict is None:
            if assignment.stopping:
                return None
            due_s, again = self._withheld.plan(delivery, outcome, now)
            handler.behind[again] = due_s
            return again
        if not rules.in_place:
            self._state.free(delivery)
            self._outbox.park(delivery, verdict, now)
            return None
        if not isinstance(verdict, Park):
            self._outbox.park(delivery, verdict, now)
            return delivery
        if assignment.stopping:
            return None
        due_s, again = self._in_place.plan(delivery, verdict, now)
        handler.behind[again] = due_s
        return again

    def tick(self, now: Now) -> None:
        """Queue batches whose wait is over, and free lanes whose last answer has come."""
        if self._lingering:
            lingering, self._lingering = self._lingering, []
            for handler, batch in lingering:
                self.resume_lanes(handler, batch, now)
        for handler in self._state.handlers.values():
            batch_buffer = handler.batch_buffer
            if batch_buffer is not None and batch_buffer:
                handler.queue.put(batch_buffer.due(now.mono_s, handler.rules.batch_wait_s))

    def next_s(self) -> float:
        """Monotonic seconds at which the next batch wait is over; inf where nothing waits."""
        return min(
            (
                handler.batch_buffer.next_s(handler.rules.batch_wait_s)
                for handler in self._state.handlers.values()
                if handler.batch_buffer is not None
            ),
            default=inf,
        )


def _by_lane(items: Iterable[tuple[TrackedDelivery, T]]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for delivery, item in items:
        found.setdefault(id(delivery.lane), []).append(item)
    return found


def _offset(delivery: TrackedDelivery) -> int:
    return delivery.record_offset
