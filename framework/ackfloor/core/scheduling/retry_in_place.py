"""InPlace: a failed record is delivered again where it is, and its lane waits for it.

Theory. A delivery that failed has ended, but its record stays open and keeps its place: a new
delivery of it (attempt + 1) goes to the head of its lane and waits there until its backoff is over.
Nothing is written anywhere, so the count of attempts is in memory and begins again with the next
assignment. The wait is an entry in its partition's queue (`due_queue`), not a slot and not a
thread; there is at most one for each blocked lane. A record that goes to the dead-letter topic
holds its lane until the broker has confirmed that: late rather than out of order.

Without lanes (unordered) the same happens to the record alone.

Invariants (tests/framework/core/engine/test_engine_model.py, test_in_place.py):

P1  no record of a lane is started before its predecessor is settled.
P2  the tracker's item of an offset is its newest delivery, so that a drop closes that one.
P3  redeliveries in place share the room of those from tiers: half of the handler's slots.
P4  a wait is never shorter than what was asked for, and vanishes with its assignment.
"""

from __future__ import annotations

from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.records.outcomes import Park, Verdict
from ackfloor.core.records.record import Now
from ackfloor.core.records.retry_policy import in_place_wait_s
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.worker_state import WorkerState

#: Into how many steps the jitter of a wait is divided.
STEPS = 1000


class InPlace:
    """The waits of records that are retried where they are."""

    __slots__ = ("_outbox", "_state")

    def __init__(self, state: WorkerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def failed(self, delivery: TrackedDelivery, verdict: Verdict, now: Now) -> None:
        """A delivery failed: plan the next one, or dead-letter the record; its lane waits."""
        if not isinstance(verdict, Park):
            self._state.block(delivery, again=False)
            self._outbox.park(delivery, verdict, now)
            return
        assignment = delivery.assignment
        if assignment.stopping:
            # It stays open, for whoever owns the partition next.
            return
        due_s, again = self.plan(delivery, verdict, now)
        self._state.block(again, again=True)
        self._state.wait(again, due_s)

    def plan(
        self, delivery: TrackedDelivery, verdict: Park, now: Now
    ) -> tuple[float, TrackedDelivery]:
        """The next delivery of a record in place of the one that failed, and when it is due."""
        wait_s = self._wait_s(delivery, verdict)
        envelope = self._state.parking.envelope(delivery, verdict, now)
        due_ms = now.wall_ms + round(wait_s * 1000)
        again = delivery.again(envelope._replace(not_before_ms=due_ms))
        delivery.assignment.tracker.replace(delivery.record_offset, again)
        delivery.assignment.withheld.retried_in_place(delivery.record_offset)
        return now.mono_s + wait_s, again

    def _wait_s(self, delivery: TrackedDelivery, verdict: Park) -> float:
        if verdict.exact:
            return verdict.delay_s
        share = self._state.parking.pick(STEPS + 1) / STEPS
        return in_place_wait_s(
            verdict.delay_s, delivery.assignment.handler.rules.policy.jitter, share
        )
