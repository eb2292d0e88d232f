"""Promotions: records in retry topics that an operator delivers now, or dead-letters.

Theory. A record that waits in a retry topic is open, and it is in the memory of the one worker that
has its partition. So the safe way to deliver it sooner is an order to that worker. *Promote* makes
it due: it stays the same delivery, with the same attempt, in the same partition, and only its due
time changes. *Bury* writes it to the dead-letter topic like any other dead letter: it is settled
when the broker has confirmed it.

Invariants. Nothing is settled here. Only records that wait are touched: one that is in work, on its
way to a topic, settled, or not read yet stays as it is, and is not counted. What was promoted and
not handled before a crash waits again for its own time: late, not lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.records.record import Now
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.state.worker_state import WorkerState

#: Of one topic: partition -> offsets.
Places = Mapping[int, Collection[int]]


class Promotions:
    """Promotes or buries waiting records; only the owner thread calls it."""

    __slots__ = ("_outbox", "_state")

    def __init__(self, state: WorkerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def waiting(self, topic: str, places: Places) -> int:
        """How many of these wait here."""
        count = 0
        for assignment, offsets in self._owned(topic, places):
            count += sum(d.record_offset in offsets for d in assignment.waiting)
        return count

    def promote(self, topic: str, places: Places, now: Now) -> int:
        """Make those that wait here due; returns how many."""
        count = 0
        for assignment, offsets in self._owned(topic, places):
            chosen = assignment.waiting.take(offsets)
            count += len(chosen)
            for due_s, delivery in chosen:
                at_s = min(due_s, now.mono_s)
                assert delivery.envelope is not None
                # No further wait either.
                delivery.envelope = delivery.envelope._replace(
                    not_before_ms=round(now.wall_ms - (now.mono_s - at_s) * 1000),
                    retry_at_ms=None,
                )
                self._state.wait(delivery, at_s)
        return count

    def bury(self, topic: str, places: Places, now: Now) -> int:
        """Write those that wait here to the dead-letter topic; returns how many."""
        count = 0
        for assignment, offsets in self._owned(topic, places):
            handler = assignment.handler
            for _, delivery in assignment.waiting.take(offsets):
                key = delivery.lane_key(handler.rules.ordering == "key")
                if handler.lanes.take_head(key, delivery):
                    # It was retried in place: its lane waits until it is written.
                    self._state.block(delivery, again=False)
                self._outbox.bury(delivery, now)
                count += 1
        return count

    def _owned(self, topic: str, places: Places) -> list[tuple[Assignment, Collection[int]]]:
        found: list[tuple[Assignment, Collection[int]]] = []
        for partition, offsets in places.items():
            assignment = self._state.assignments.get((topic, partition))
            if assignment is not None and not assignment.stopping:
                # Withheld records were tried already: they wait for a trial.
                mine = frozenset(o for o in offsets if o not in assignment.withheld)
                found.append((assignment, mine))
        return found
