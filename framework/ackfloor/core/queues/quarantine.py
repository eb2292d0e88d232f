"""Quarantine: a lane whose first record failed and waits in a retry topic, and what is behind it.

Theory. Such a lane is QUARANTINED. Its records are in retry topics, on their way there, or read
from the source and not yet written behind the others (`pending`). They are ordered by their origin
offsets, wherever they are: the lowest is the head, the only one that may be delivered. A copy is
written before the one it was made from is settled, so after a crash a record may be there twice:
what is read of a record that is here already is a twin, which is settled when the record is.

Invariants (tests/framework/core/queues/test_quarantine.py):

Q1  the head is the record with the lowest origin offset that is not resolved.
Q2  a record is in it once, by its origin offset: read, to be read, or being written; or it is
    pending.
Q3  what is pending is in the order of its offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.outcomes import Bury
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import AfterDeadLetter, Assignment

#: Where a record is: read, and waiting or delivered; to be read; or being written.
Where: TypeAlias = "TrackedDelivery | Assignment | PendingWrite"


class Tally:
    """How many records are in a handler's quarantines, those that are pending not counted."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Quarantine:
    """The records of one quarantined lane.

    Args:
        tally: where all of its handler are counted.

    Attributes:
        key: the lane's name.
        since_ms: when it was quarantined, as far as this worker knows.
        current: the head's delivery once it has its time, or runs.
        condemned: records up to this origin offset go to the dead-letter topic, with the one in
            front of them; -1 where none do.
        after: what becomes of those behind its head, where an operator has said so.
    """

    __slots__ = (
        "_buried",
        "_order",
        "_pending",
        "_tally",
        "_to_bury",
        "_twins",
        "_where",
        "after",
        "condemned",
        "condemned_count",
        "current",
        "key",
        "since_ms",
    )

    def __init__(self, key: LaneKey, since_ms: int, tally: Tally) -> None:
        self.key = key
        self.since_ms = since_ms
        self._tally = tally
        #: Origin offsets, lowest first; resolved ones stay until they are the lowest.
        self._order: list[int] = []
        self._where: dict[int, Where] = {}
        self._twins: dict[int, list[TrackedDelivery]] | None = None
        #: None without any: an empty one takes half a KiB.
        self._pending: deque[TrackedDelivery] | None = None
        self.current: TrackedDelivery | None = None
        self.condemned = -1
        #: How many of these are left.
        self.condemned_count = 0
        #: The offsets of those that are not on their way there, lowest first; None without any.
        self._to_bury: list[int] | None = None
        #: The last of them that was sent there.
        self._buried = -1
        self.after: AfterDeadLetter | None = None

    def __len__(self) -> int:
        """How many records are in it, those that are pending not counted."""
        return len(self._where)

    def __contains__(self, offset: object) -> bool:
        return offset in self._where

    @property
    def behind(self) -> int:
        """How many records wait behind its head."""
        count = len(self._where) + len(self.pending)
        return count - 1 if self._where else count

    @property
    def pending(self) -> Collection[TrackedDelivery]:
        """What was read from the source and is not yet written behind the others, in order."""
        return self._pending or ()

    def pend(self, deliveries: Sequence[TrackedDelivery]) -> None:
        """Put deliveries of the source, in order, behind the others."""
        if not deliveries:
            return
        if self._pending is None:
            self._pending = deque()
        last = self._pending[-1].record_offset if self._pending else -1
        self._pending.extend(deliveries)
        if deliveries[0].record_offset < last:
            # Those before it were in its lane, or behind a crash suspect.
            self._pending = deque(sorted(self._pending, key=attrgetter("record_offset")))

    def take_pending(self, most: int | None = None) -> list[TrackedDelivery]:
        """Take out the first so many that are pending, or all of them."""
        pending = self._pending
        if pending is None:
            return []
        count = len(pending) if most is None else min(most, len(pending))
        taken = [pending.popleft() for _ in range(count)]
        if not pending:
            self._pending = None
        return taken

    @property
    def head(self) -> int | None:
        """The origin offset of its head; None where nothing is in it but what is pending."""
        order = self._order
        while order and order[0] not in self._where:
            heappop(order)
        return order[0] if order else None

    def at(self, offset: int) -> Where:
        """Where a record is that is in it."""
        return self._where[offset]

    def put(self, offset: int, where: Where) -> None:
        """A record is in it, or is somewhere else now."""
        if offset not in self._where:
            heappush(self._order, offset)
            self._tally.count += 1
            self.condemned_count += offset <= self.condemned
        self._where[offset] = where
        if offset <= self.condemned and isinstance(where, TrackedDelivery):
            self._to_bury = self._to_bury or []
            heappush(self._to_bury, offset)

    def fill(self, found: Iterable[tuple[int, Assignment]]) -> None:
        """Put in what was found in retry topics at a takeover."""
        self._where.update(found)
        self._tally.count += len(self._where)
        self._order = list(self._where)
        heapify(self._order)

    def twin(self, offset: int, delivery: TrackedDelivery) -> None:
        """Another copy of a record that is in it was read."""
        if self._twins is None:
            self._twins = {}
        self._twins.setdefault(offset, []).append(delivery)

    def resolve(self, offset: int) -> list[TrackedDelivery]:
        """A record has left: it is settled, and no copy waits; returns its twins."""
        del self._where[offset]
        self._tally.count -= 1
        self.condemned_count -= offset <= self.condemned
        return self.take_twins(offset)

    def take_twins(self, offset: int) -> list[TrackedDelivery]:
        """The other copies of a record, which are settled now."""
        return [] if self._twins is None else self._twins.pop(offset, [])

    def condemn(self) -> None:
        """All that is in it goes to the dead-letter topic, but its head, which is there."""
        self.condemned = max(self._where)
        self.condemned_count = len(self._where) - 1
        self._to_bury = sorted(self._where)

    def spare(self) -> None:
        """Nothing of it goes to the dead-letter topic any more."""
        self.condemned, self.condemned_count, self._to_bury = -1, 0, None

    def take_condemned(self) -> TrackedDelivery | None:
        """The next one that goes to the dead-letter topic, in order.

        None where it is not read; and while one before it, from another partition, is being
        written: transactions may write that later.
        """
        while self._to_bury:
            offset = self._to_bury[0]
            where = self._where.get(offset)
            if isinstance(where, TrackedDelivery) and offset != self.head:
                last = self._where.get(self._buried)
                other = isinstance(last, PendingWrite) and last.delivery.assignment
                if other and other is not where.assignment:
                    return None
                self._buried = heappop(self._to_bury)
                return where
            on_its_way = isinstance(where, PendingWrite) and isinstance(where.verdict, Bury)
            if not (where is None or on_its_way or offset == self.head):
                return None
            heappop(self._to_bury)
        return None

    def unread(self) -> set[Assignment]:
        """The retry partitions that have to be read for it to go on."""
        if self.condemned < 0:
            places = [] if self.head is None else [self._where[self.head]]
        else:
            places = list(self._where.values())
        return {where for where in places if not isinstance(where, TrackedDelivery | PendingWrite)}

    def gives_way(self) -> bool:
        """Whether no record behind the head has its turn: one with a lower offset may come late.

        What only waits for its time gives way, what runs does not.
        """
        current = self.current
        if current is None:
            return True
        if current.closed or current.retrying:
            return False
        current.assignment.waiting.take({current.record_offset})
        self.current = None
        return True

    def forget(self, assignment: Assignment) -> None:
        """An assignment has ended: what is here of it, or was to be read there, is not in it."""
        gone = [
            offset
            for offset, where in self._where.items()
            if where is assignment or _assignment_of(where) is assignment
        ]
        for offset in gone:
            self.resolve(offset)
        if self._twins is not None:
            self._twins = {
                offset: kept
                for offset, twins in self._twins.items()
                if (kept := [each for each in twins if each.assignment is not assignment])
            }
        if self.current is not None and self.current.assignment is assignment:
            self.current = None

    def forget_unread(self, assignment: Assignment) -> bool:
        """What was to be read there never comes; returns whether there was anything."""
        gone = [offset for offset, where in self._where.items() if where is assignment]
        for offset in gone:
            self.resolve(offset)
        return bool(gone)


def _assignment_of(where: Where) -> Assignment | None:
    """Of which partition a record is that is read, or being written."""
    if isinstance(where, TrackedDelivery):
        return where.assignment
    return where.delivery.assignment if isinstance(where, PendingWrite) else None


def is_same(where: object, delivery: TrackedDelivery) -> bool:
    """Whether a place in a quarantine is that of a delivery's record; which may be a later one."""
    return (
        isinstance(where, TrackedDelivery)
        and where.assignment is delivery.assignment
        and where.record_offset == delivery.record_offset
    )


def newness(delivery: TrackedDelivery) -> tuple[int, int]:
    """Which of two copies of a record is the later one: that with more redrives, or attempts."""
    envelope = delivery.envelope
    return (0, 0) if envelope is None else (envelope.replays, envelope.attempt)


def has_order(delivery: TrackedDelivery) -> bool:
    """Whether a record is in the order of a key here: it has one, and came from this partition."""
    assignment = delivery.assignment
    own = assignment.source_topic, assignment.partition
    return delivery.key is not None and delivery.origin[:2] == own
