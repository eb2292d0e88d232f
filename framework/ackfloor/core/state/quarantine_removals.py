"""Removals: retention takes records of a retry partition before they were read.

Theory. Nobody knows where in a log a record waits that was not read. So when the log has lost some,
each record of a quarantined key that was to be read there may be gone, or may come: it keeps its
place. All of them were written before the loss was seen, below the log's end of that moment. When
the log was read up to there, those that are still missing were removed, and their keys go on. A
record that is written to the partition meanwhile has a place of its own and is none of them.

Invariants (tests/framework/core/state/test_quarantine_removals.py):

R1  a record that is still in the log keeps its place until it was read.
R2  a record that was removed is waited for no longer than what was in the log then is read.
R3  an older copy of a record that was removed, which is read later, is the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ackfloor.core.queues.quarantine import MaybeRemoved, Quarantine, may_be_one
from ackfloor.core.records.record import ParkedRecord
from ackfloor.core.records.tracked_delivery import LaneKey
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: The quarantines whose records are waited for no longer, and their handlers.
Touched = Mapping[Quarantine, HandlerState]
#: Origin offsets of records that were removed, and their timestamps in the source.
Forgotten = Sequence[tuple[int, int | None]]


class Removals:
    """What may have been removed from retry partitions; only the owner thread calls it."""

    __slots__ = ("_state", "_unresolved")

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        #: Retry partition -> its losses up to whose ends it was not read; the first is the oldest.
        self._unresolved: dict[Assignment, list[MaybeRemoved]] = {}

    def add(self, assignment: Assignment, end: int) -> None:
        """A log, which ends there, has lost records that were not read."""
        removed = MaybeRemoved(assignment, end)
        for quarantine in assignment.handler.lanes.quarantined.values():
            quarantine.doubt(removed)
        self._unresolved.setdefault(assignment, []).append(removed)

    @property
    def any_read(self) -> bool:
        """Whether some log was read up to where it ended."""
        return any(_is_read(losses[0]) for losses in self._unresolved.values())

    def read_by_now(self) -> Touched:
        """Wait no longer for what was not found in logs that were read up to where they ended."""
        touched: dict[Quarantine, HandlerState] = {}
        for assignment, losses in list(self._unresolved.items()):
            while losses and _is_read(losses[0]):
                touched.update(self._forget(losses.pop(0)))
                # Which of these were removed is not known either; it is a hint.
                assignment.others_unread = 0
            if not losses:
                del self._unresolved[assignment]
        return touched

    def deleted(self, assignment: Assignment) -> Touched:
        """A topic was deleted: nothing that was not read comes."""
        touched = dict(self._forget(assignment))
        for removed in self._unresolved.pop(assignment, ()):
            touched.update(self._forget(removed))
        return touched

    def dropped(self, gone: Sequence[Assignment]) -> None:
        """Partitions are gone, and with them what was to be read there."""
        for assignment in gone:
            self._unresolved.pop(assignment, None)

    def _forget(self, place: Assignment | MaybeRemoved) -> Touched:
        assignment = place.assignment if isinstance(place, MaybeRemoved) else place
        source = self._state.assignments.get((assignment.source_topic, assignment.partition))
        touched: dict[Quarantine, HandlerState] = {}
        for quarantine in assignment.handler.lanes.quarantined.values():
            if forgotten := quarantine.forget_unread(place):
                touched[quarantine] = assignment.handler
                self._restore_older(quarantine.key, forgotten)
                if source is not None:
                    # If the source still has it, that is no copy any more.
                    for offset, written_ms in forgotten:
                        name = offset, quarantine.key[2]
                        source.parked_before -= {(*name, written_ms), (*name, None)}
        return touched

    def _restore_older(self, key: LaneKey, forgotten: Forgotten) -> None:
        """Of records that were removed, other copies count that were superseded by those."""
        topic, partition, name = key
        for a in self._state.assignments.values():
            if a.superseded and (a.source_topic, a.partition) == (topic, partition):
                a.superseded = {
                    offset: record
                    for offset, record in a.superseded.items()
                    if record.key != name or not _is_among(forgotten, record)
                }


def _is_among(forgotten: Forgotten, record: ParkedRecord) -> bool:
    return any(
        offset == record.origin_offset and may_be_one(written_ms, record.origin_timestamp_ms)
        for offset, written_ms in forgotten
    )


def _is_read(removed: MaybeRemoved) -> bool:
    """Whether all was read that was in the log when it had lost records."""
    assignment = removed.assignment
    return not assignment.awaited and assignment.tracker.position >= removed.end
