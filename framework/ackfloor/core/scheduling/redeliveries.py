"""Redeliveries: due records go from waiting to their handler's queue, as far as there is room.

Theory. Each partition has a queue of waiting records (`due_queue`). A due record goes ahead of
those that were not tried yet, the longest due first, and takes at most half of a handler's slots
(`HandlerState.retry_room`), those whose last delivery timed out a quarter (`fair_order`); while a
breaker is not closed, the breaker says how many. A record that is due in a tier and has a further
wait of its own hops to another tier instead.

A record that blocks its lane is queued as that lane, whose first it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.envelope import DID_NOT_FAIL, Envelope, Reason
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TAKES_ROOM, TrackedDelivery
from ackfloor.core.scheduling.crash_suspects import Suspects
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: Seconds until a record whose last delivery timed out is looked at again, where it has no room.
LOOK_AGAIN_S = 1.0
#: What a tier's delay is multiplied by at most: jitter is a share of 1 at most.
LONGEST_WAIT = 2


class Redeliveries:
    """From waiting to queued."""

    __slots__ = ("_outbox", "_state", "_suspects")

    def __init__(self, state: WorkerState, outbox: Outbox, suspects: Suspects) -> None:
        self._state = state
        self._outbox = outbox
        self._suspects = suspects

    def tick(self, now: Now) -> None:
        """Deliver what is due, as far as there is room, the longest due first."""
        state = self._state
        if state.waiting:
            state.waiting = {a: None for a in state.waiting if a.waiting}
            for assignment in sorted(state.waiting, key=_next_s):
                self.release(assignment, assignment.handler.retry_room(), now)

    def release_all(self, handler: HandlerState, most: int, now: Now) -> int:
        """Deliver up to so many of a handler's records that are due; returns how many."""
        mine = [a for a in self._state.waiting if a.handler is handler and a.waiting]
        released = 0
        for assignment in sorted(mine, key=_next_s):
            released += self.release(assignment, most - released, now)
        return released

    def release(self, assignment: Assignment, room: int, now: Now) -> int:
        """Deliver up to so many of one partition's records that are due; returns how many."""
        waiting, withheld, timeout = assignment.waiting, assignment.withheld, Reason.TIMEOUT
        due: list[TrackedDelivery] = []
        while len(due) < room and (found := waiting.pop_due(now.mono_s, room - len(due))):
            for delivery in found:
                envelope = delivery.envelope
                if envelope is not None:
                    if envelope.retry_at_ms and self._leaves(delivery, now):
                        continue
                    if envelope.reason is timeout and self._has_no_room(delivery, now):
                        continue
                delivery.retrying = TAKES_ROOM
                due.append(delivery)
        while waiting.next_s <= now.mono_s and self._leaves(waiting.first, now):
            # A hop takes no room.
            waiting.pop()
        if withheld:
            for delivery in due:
                withheld.redeliver(delivery.record_offset)
        if due:
            # What `redelivers` does, without a call for each record.
            assignment.handler.open_retries += len(due)
            self._deliver(assignment.handler, due, now)
        return len(due)

    def _has_no_room(self, delivery: TrackedDelivery, now: Now) -> bool:
        """Whether a record whose last delivery timed out waits, as too many of these have slots."""
        handler = delivery.assignment.handler
        fair = handler.queue.fair
        if fair is None or handler.circuit.breaker.is_open or handler.outputs_full:
            # A breaker that is not closed tries any; full, those that have slots may wait for it.
            return False
        if fair.may_redeliver(delivery, handler.quarter):
            return False
        self._state.wait(delivery, now.mono_s + LOOK_AGAIN_S)
        return True

    def _leaves(self, delivery: TrackedDelivery, now: Now) -> bool:
        """Whether a record whose wait is over leaves without being delivered."""
        envelope = delivery.envelope
        if envelope is not None and envelope.reason is Reason.HELD:
            # Its handler does not quarantine any more; it is in the dead-letter topic.
            self._state.settle_copy(delivery)
            return True
        waits = _waits_on(delivery, now)
        if waits:
            self._outbox.hop(delivery, now)
        return waits

    def _deliver(self, handler: HandlerState, due: Sequence[TrackedDelivery], now: Now) -> None:
        """Queue deliveries, or the lanes that wait for them, ahead of what was not tried yet."""
        if handler.rate is not None:
            handler.rate.redelivered(len(due))
        if handler.rules.ordering != "unordered":
            lanes: list[Lane] = []
            others: list[TrackedDelivery] = []
            for delivery in due:
                lane = self._state.lane_of_due(delivery)
                if lane is None:
                    others.append(delivery)
                else:
                    lanes.append(lane)
            handler.queue.put(lanes, ahead=True)
            due = others
        if due and self._suspects.watching:
            due = self._suspects.sift(handler, due, now)
        if due:
            self._state.dispatch(handler, due, ahead=True)

    def next_of(self, handler: HandlerState) -> float:
        """Monotonic seconds at which a handler's next record becomes due, room or not."""
        return min(
            (a.waiting.next_s for a in self._state.waiting if a.handler is handler), default=inf
        )

    def next_s(self, now: Now) -> float:
        """Monotonic seconds at which a record becomes due, infinity where none does.

        Without room none is counted: the next answer makes room. Except records in a tier that are
        not due yet: they may hop to another tier then.
        """
        return min(
            (
                a.waiting.next_s
                for a in self._state.waiting
                if a.handler.retry_room() > 0
                or (a.tier_s is not None and a.waiting.next_s > now.mono_s)
            ),
            default=inf,
        )


def due_s(delivery: TrackedDelivery, envelope: Envelope, now: Now) -> float:
    """When a tier record is due in this tier; at the end of all its waits where it can't hop.

    In monotonic seconds: a wall clock that is set back must not delay it once it was read. It was
    parked before it was read, so it waits no longer from now than the longest wait in its tier:
    a later time comes from a worker whose clock was ahead, and would delay all records behind it.
    """
    assignment = delivery.assignment
    wait_s = ((envelope.not_before_ms or 0) - now.wall_ms) / 1000
    if assignment.tier_s is not None:
        wait_s = min(wait_s, assignment.tier_s * LONGEST_WAIT)
    if assignment.handler.rules.in_place and envelope.reason not in DID_NOT_FAIL:
        wait_s = max(wait_s, ((envelope.retry_at_ms or 0) - now.wall_ms) / 1000)
    return now.mono_s + wait_s


def _next_s(assignment: Assignment) -> float:
    return assignment.waiting.next_s


def _waits_on(delivery: TrackedDelivery, now: Now) -> bool:
    """Whether a record has a further wait of its own, which another tier takes."""
    envelope = delivery.envelope
    if envelope is None or envelope.retry_at_ms is None:
        return False
    if delivery.record_offset in delivery.assignment.withheld:
        # It has been tried since then.
        return False
    if envelope.reason is Reason.BEHIND:
        # It waits behind another record, or has done so; see `parking`.
        return False
    tiers = delivery.assignment.handler.rules.policy.tiers()
    return bool(tiers) and envelope.retry_at_ms > now.wall_ms
