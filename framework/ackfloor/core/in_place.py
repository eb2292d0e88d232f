"""InPlace: a failed record is delivered again where it is, and its lane waits for it.

Theory. A delivery that failed has ended, but its record stays open and keeps its place: a new
delivery of it (attempt + 1) goes to the head of its lane and waits there until its backoff is
over. Nothing is written anywhere, so the count of attempts is in memory and begins again with
the next assignment. The wait is an entry in a heap of the assignment, not a slot and not a
thread; there is at most one for each blocked lane. A record that goes to the dead-letter topic
holds its lane until the broker has confirmed that: late rather than out of order.

Without lanes (unordered) the same happens to the record alone.

Invariants (tests/framework/core/test_engine_model.py, test_in_place.py):

P1  no record of a lane is started before its predecessor is settled.
P2  the tracker's item of an offset is its newest delivery, so that a drop closes that one.
P3  redeliveries in place share the room of those from tiers: half of the handler's slots.
P4  a wait is never shorter than what was asked for, and vanishes with its assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf

from ackfloor.core.assignment import Assignment, HandlerState
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.core.model import Now
from ackfloor.core.outcomes import Park, Verdict
from ackfloor.core.parcels import Parcels
from ackfloor.core.retry import in_place_wait_s
from ackfloor.core.state import WorkerState

#: Into how many steps the jitter of a wait is divided.
STEPS = 1000


class InPlace:
    """The waits of records that are retried where they are."""

    __slots__ = ("_parcels", "_state")

    def __init__(self, state: WorkerState, parcels: Parcels) -> None:
        self._state = state
        self._parcels = parcels

    def failed(self, delivery: Delivery, verdict: Verdict, now: Now) -> None:
        """A delivery failed: plan the next one, or dead-letter the record; its lane waits."""
        if not isinstance(verdict, Park):
            self._state.block(delivery, again=False)
            self._parcels.park(delivery, verdict, now)
            return
        assignment = delivery.assignment
        if assignment.stopping:
            # It stays open, for whoever owns the partition next.
            return
        due_s, again = self.plan(delivery, verdict, now)
        self._state.block(again, again=True)
        heappush(assignment.backoff, (due_s, again.record_offset, again))

    def plan(self, delivery: Delivery, verdict: Park, now: Now) -> tuple[float, Delivery]:
        """The next delivery of a record in place of the one that failed, and when it is due."""
        wait_s = self._wait_s(delivery, verdict)
        envelope = self._state.parking.envelope(delivery, verdict, now)
        due_ms = now.wall_ms + round(wait_s * 1000)
        again = delivery.again(replace(envelope, not_before_ms=due_ms))
        delivery.assignment.tracker.replace(delivery.record_offset, again)
        return now.mono_s + wait_s, again

    def _wait_s(self, delivery: Delivery, verdict: Park) -> float:
        if verdict.exact:
            return verdict.delay_s
        share = self._state.parking.pick(STEPS + 1) / STEPS
        return in_place_wait_s(
            verdict.delay_s, delivery.assignment.handler.rules.policy.jitter, share
        )

    def tick(self, now: Now) -> None:
        """Deliver again what is due, as far as there is room, the longest due first."""
        waiting = [a for a in self._state.assignments.values() if a.backoff]
        waiting.sort(key=_head_due_s)
        for assignment in waiting:
            self._release(assignment, assignment.handler.retry_room(), now)

    def release(self, handler: HandlerState, most: int, now: Now) -> int:
        """Deliver up to so many of a handler's records again that are due; returns how many."""
        assignments = self._state.assignments.values()
        waiting = [a for a in assignments if a.backoff and a.handler is handler]
        released = 0
        for assignment in sorted(waiting, key=_head_due_s):
            released += self._release(assignment, most - released, now)
        return released

    def _release(self, assignment: Assignment, room: int, now: Now) -> int:
        backoff, handler = assignment.backoff, assignment.handler
        due: list[Delivery] = []
        while backoff and backoff[0][0] <= now.mono_s and len(due) < room:
            delivery = heappop(backoff)[2]
            assignment.withheld.let_go(delivery.record_offset)
            handler.redelivers(delivery)
            due.append(delivery)
        self._deliver(handler, due)
        return len(due)

    def _deliver(self, handler: HandlerState, due: Sequence[Delivery]) -> None:
        """Deliveries, or the lanes that wait for them, go ahead of what was not tried yet."""
        items: Sequence[Delivery | Run] = due
        if handler.rules.ordering != "unordered":
            runs = [self._state.lane_of_due(delivery) for delivery in due]
            items = [run for run in runs if run is not None]
        handler.queue.put(items, ahead=True)

    def next_of(self, handler: HandlerState) -> float:
        """Monotonic seconds at which a handler's next retry becomes due, room or not."""
        mine = [a for a in self._state.assignments.values() if a.handler is handler]
        return min((a.backoff[0][0] for a in mine if a.backoff), default=inf)

    def next_s(self) -> float:
        """Monotonic seconds at which a retry becomes due, infinity where none does.

        One that is due but has no room is not counted: an answer makes the room.
        """
        return min(
            (
                a.backoff[0][0]
                for a in self._state.assignments.values()
                if a.backoff and a.handler.retry_room() > 0
            ),
            default=inf,
        )


def _head_due_s(assignment: Assignment) -> float:
    return assignment.backoff[0][0]
