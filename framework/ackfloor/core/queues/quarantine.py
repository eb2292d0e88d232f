"""Quarantine: a lane whose first record failed and waits in a retry topic, and what is behind it.

Theory. Such a lane is QUARANTINED. Its records are in retry topics, on their way there, or read
from the source and not yet written behind the others (`pending`). They are ordered by their origin
offsets, wherever they are: the lowest is the head, the only one that may be delivered. A copy is
written before the one it was made from is settled, so after a crash a record may be there twice:
what is read of a record that is here already is a twin, which is settled when the record is.

A source topic that was created anew, or truncated, has other records at the offsets of those that
are here. So a record is known by its origin offset and its timestamp; one whose timestamp is not
known is taken for any. Of several with one offset, one is at its place at a time and the others
wait for it, in no order of their own.

Invariants (tests/framework/core/queues/test_quarantine.py):

Q1  the head is the record with the lowest origin offset that is not resolved.
Q2  a record is in it once, by its origin: read, to be read, or being written; or it is pending.
Q3  what is pending is in the order of its offsets.
Q4  a record leaves no other one's place, nor takes it along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import AfterDeadLetter, Assignment

#: Where a record is: read, and waiting or delivered; to be read; or being written.
Where: TypeAlias = "TrackedDelivery | Unread | PendingWrite"


class MaybeRemoved:
    """Some of a retry partition's log was removed: where the records are that were unread then.

    Attributes:
        assignment: the retry partition.
        end: where its log ended. What was not read up to there was removed.
    """

    __slots__ = ("assignment", "end")

    def __init__(self, assignment: Assignment, end: int) -> None:
        self.assignment = assignment
        self.end = end


class Unread:
    """A record that is to be read from a retry partition.

    Attributes:
        place: that partition; or a loss of its log, by which it may have been removed.
        written_ms: the record's timestamp in the source; None where it is not known.
    """

    __slots__ = ("place", "written_ms")

    def __init__(self, place: Assignment | MaybeRemoved, written_ms: int | None) -> None:
        self.place = place
        self.written_ms = written_ms

    @property
    def assignment(self) -> Assignment:
        """The retry partition."""
        return self.place.assignment if isinstance(self.place, MaybeRemoved) else self.place


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
        since_ms: when it was quarantined, as far as it is known, in wall-clock ms.
        inherited: another worker quarantined it, perhaps before: for a record that is settled now.
        first: the origin offset of the record for which it was; -1 where a partition has left
            with some of its records.
        current: the head's delivery once it has its time, or runs.
        condemned: records up to this origin offset go to the dead-letter topic, with the one in
            front of them; -1 where none do.
        after: what becomes of those behind its head, where an operator has said so.
    """

    __slots__ = (
        "_burying",
        "_condemned_by",
        "_order",
        "_others",
        "_pending",
        "_tally",
        "_to_bury",
        "_twins",
        "_where",
        "after",
        "condemned",
        "condemned_count",
        "current",
        "first",
        "inherited",
        "key",
        "since_ms",
    )

    def __init__(
        self, key: LaneKey, since_ms: int, tally: Tally, first: int, *, inherited: bool = False
    ) -> None:
        self.key = key
        self.since_ms = since_ms
        self.inherited = inherited
        self.first = first
        self._tally = tally
        #: Origin offsets, lowest first; resolved ones stay until they are the lowest.
        self._order: list[int] = []
        self._where: dict[int, Where] = {}
        #: Other records with the offset of one of these; None without any.
        self._others: dict[int, list[Where]] | None = None
        self._twins: dict[int, list[TrackedDelivery]] | None = None
        #: None without any: an empty one takes half a KiB.
        self._pending: deque[TrackedDelivery] | None = None
        self.current: TrackedDelivery | None = None
        self.condemned = -1
        #: The head with which they go; -1 without one.
        self._condemned_by = -1
        #: How many of these are left.
        self.condemned_count = 0
        #: The offsets of those that are not on their way there, lowest first; None without any.
        self._to_bury: list[int] | None = None
        #: Those that were sent there last, lowest first; None without any.
        self._burying: deque[int] | None = None
        self.after: AfterDeadLetter | None = None

    def __len__(self) -> int:
        """How many records are in it, those that are pending not counted."""
        return len(self._where) + sum(map(len, (self._others or {}).values()))

    def __contains__(self, offset: object) -> bool:
        return offset in self._where

    def has_at(self, offset: int, written_ms: int | None) -> bool:
        """Whether a record is in it; if so, it is the one at its offset now."""
        here = self._where.get(offset)
        if here is None:
            return False
        if may_be_one(_written_ms(here), written_ms):
            return True
        for number, other in enumerate((self._others or {}).get(offset, ())):
            if may_be_one(_written_ms(other), written_ms):
                self._turn(offset, number)
                return True
        return False

    def has(self, delivery: TrackedDelivery) -> bool:
        """The same of a delivery's record."""
        offset = delivery.origin.offset
        return offset in self._where and self.has_at(offset, written_ms(delivery))

    def _turn(self, offset: int, number: int) -> None:
        """Another record with that offset is the one at its place."""
        assert self._others is not None
        others, here = self._others[offset], self._where[offset]
        self._where[offset], others[number] = others[number], here
        self._may_bury(offset)

    @property
    def behind(self) -> int:
        """How many records wait behind its head."""
        count = len(self) + len(self.pending)
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

    @property
    def next_pending(self) -> TrackedDelivery | None:
        """The first of them; None while another record is in it that had its offset before."""
        first = next(iter(self.pending), None)
        return None if first is None or first.record_offset in self._where else first

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
        """A record is in it, or the one at its offset is somewhere else now."""
        if offset not in self._where:
            heappush(self._order, offset)
            self._tally.count += 1
            self.condemned_count += offset <= self.condemned
        self._where[offset] = where
        self._may_bury(offset)
        if self._others is not None:
            self._prefer_read(offset)

    def add(self, offset: int, where: Where) -> None:
        """A record is in it that was not, maybe another than the one at its offset."""
        if offset not in self._where:
            self.put(offset, where)
            return
        if self._others is None:
            self._others = {}
        self._others.setdefault(offset, []).append(where)
        self._tally.count += 1
        self._prefer_read(offset)

    def _prefer_read(self, offset: int) -> None:
        """What was read goes on before what was not: that may need its room."""
        if isinstance(self._where[offset], Unread):
            for number, other in enumerate((self._others or {}).get(offset, ())):
                if isinstance(other, TrackedDelivery):
                    self._turn(offset, number)
                    return

    def _may_bury(self, offset: int) -> None:
        if offset <= self.condemned and isinstance(self._where[offset], TrackedDelivery):
            self._to_bury = self._to_bury or []
            heappush(self._to_bury, offset)

    def fill(self, found: Iterable[tuple[int, Unread]]) -> None:
        """Put in what was found in retry topics at a takeover, each record once."""
        others: list[tuple[int, Unread]] = []
        for offset, where in found:
            if self._where.setdefault(offset, where) is not where:
                others.append((offset, where))
        self._tally.count += len(self._where)
        self._order = list(self._where)
        heapify(self._order)
        for offset, where in others:
            self.add(offset, where)

    def twin(self, offset: int, delivery: TrackedDelivery) -> None:
        """Another copy of a record that is in it was read."""
        if self._twins is None:
            self._twins = {}
        self._twins.setdefault(offset, []).append(delivery)

    def resolve(self, offset: int) -> list[TrackedDelivery]:
        """The record at an offset has left: it is settled, and no copy waits; returns its twins.

        Another one with its offset is at its place now, if there is one.
        """
        twins = self.take_twins(offset)
        if offset == self._condemned_by:
            # Removed from the log, or discarded: the others go on without it.
            self.spare()
        del self._where[offset]
        self._tally.count -= 1
        self.condemned_count -= offset <= self.condemned
        if self._others is not None and (others := self._others.pop(offset, None)):
            self._tally.count -= 1
            following = others.pop(0)
            if others:
                self._others[offset] = others
            self.put(offset, following)
        if not self._others:
            self._others = None
        return twins

    def take_twins(self, offset: int) -> list[TrackedDelivery]:
        """The other copies of the record at an offset, which are settled now."""
        twins = [] if self._twins is None else self._twins.pop(offset, [])
        if not (twins and self._twins is not None and self._others and offset in self._others):
            return twins
        own_ms = _written_ms(self._where[offset])
        kept = [twin for twin in twins if not may_be_one(own_ms, written_ms(twin))]
        if kept:
            self._twins[offset] = kept
        return [twin for twin in twins if twin not in kept]

    def condemn(self) -> None:
        """All that is in it goes to the dead-letter topic, but its head, which is there."""
        self._condemned_by = min(self._where)
        self.condemned = max(self._where)
        self.condemned_count = len(self._where) - 1
        self._to_bury = sorted(self._where)

    def spare(self) -> None:
        """Nothing of it goes to the dead-letter topic any more."""
        self.condemned = self._condemned_by = -1
        self.condemned_count, self._to_bury = 0, None

    def take_condemned(self) -> list[TrackedDelivery]:
        """The next ones that go to the dead-letter topic, in order, as far as they were read.

        None while one before them is being written: that may be refused, and written again later.
        All are of one partition, in the order of its log: transactions may write those of another
        one at another time, and those further on in the log later.
        """
        taken: list[TrackedDelivery] = []
        if self._is_burying():
            return taken
        while self._to_bury:
            offset = self._to_bury[0]
            where = self._where.get(offset)
            if where is None or offset == self.head or (taken and where is taken[-1]):
                heappop(self._to_bury)
                continue
            if not isinstance(where, TrackedDelivery) or (taken and not _follows(taken[-1], where)):
                break
            taken.append(where)
            heappop(self._to_bury)
        if taken:
            self._burying = deque(each.origin.offset for each in taken)
        return taken

    def _is_burying(self) -> bool:
        """Whether something that was sent to the dead-letter topic is being written yet."""
        burying = self._burying
        while burying:
            if isinstance(self._where.get(burying[0]), PendingWrite):
                return True
            burying.popleft()
        self._burying = None
        return False

    def unread(self) -> set[Assignment]:
        """The retry partitions that have to be read for it to go on."""
        if self.condemned < 0:
            places = [] if self.head is None else [self._where[self.head]]
        else:
            places = list(self._where.values())
        return {where.assignment for where in places if isinstance(where, Unread)}

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
            (offset, where)
            for offset, where in self._places()
            if _assignment_of(where) is assignment
        ]
        if self._twins is not None:
            self._twins = {
                offset: kept
                for offset, twins in self._twins.items()
                if (kept := [each for each in twins if each.assignment is not assignment])
            }
        for offset, where in gone:
            self._leave(offset, where)
        if self.current is not None and self.current.assignment is assignment:
            self.current = None

    def _places(self) -> Iterator[tuple[int, Where]]:
        """Where all of its records are, and their offsets."""
        others = (self._others or {}).items()
        return chain(
            self._where.items(), ((offset, each) for offset, all_ in others for each in all_)
        )

    def _leave(self, offset: int, where: Where) -> None:
        """A record is not in it any more, but for another copy of it that was read."""
        if self._where[offset] is not where:
            assert self._others is not None
            self._turn(offset, self._others[offset].index(where))
        for number, twin in enumerate(self.resolve(offset)):
            if number:
                self.twin(offset, twin)
            else:
                self.add(offset, twin)

    def doubt(self, removed: MaybeRemoved) -> None:
        """Some of what was to be read in a partition was removed, and nobody knows which."""
        for _, where in self._places():
            if isinstance(where, Unread) and where.place is removed.assignment:
                where.place = removed

    def doubts(self, offset: int) -> bool:
        """Whether the record at an offset may have been removed."""
        where = self._where.get(offset)
        return isinstance(where, Unread) and isinstance(where.place, MaybeRemoved)

    def is_doubtful(self, delivery: TrackedDelivery) -> bool:
        """The same of a delivery's record."""
        return self.has(delivery) and self.doubts(delivery.origin.offset)

    def forget_unread(self, place: Assignment | MaybeRemoved) -> list[tuple[int, int | None]]:
        """What was to be read there never comes; returns the origin offsets and timestamps."""
        gone = [
            (offset, where)
            for offset, where in self._places()
            if isinstance(where, Unread) and where.place is place
        ]
        for offset, where in gone:
            self._leave(offset, where)
        return [(offset, where.written_ms) for offset, where in gone]


def _assignment_of(where: Where) -> Assignment:
    """In which partition a record was read, or is to be read."""
    return where.delivery.assignment if isinstance(where, PendingWrite) else where.assignment


def written_ms(delivery: TrackedDelivery) -> int | None:
    """The timestamp of a record in the source, as far as it is known."""
    envelope = delivery.envelope
    if envelope is None or envelope.origin_topic is None:
        return delivery.timestamp
    return envelope.origin_timestamp_ms


def _written_ms(where: Where) -> int | None:
    if isinstance(where, Unread):
        return where.written_ms
    return written_ms(where.delivery if isinstance(where, PendingWrite) else where)


def may_be_one(one_ms: int | None, other_ms: int | None) -> bool:
    """Whether two timestamps may be those of one record."""
    return one_ms is None or other_ms is None or one_ms == other_ms


def is_same(where: object, delivery: TrackedDelivery) -> bool:
    """Whether a place in a quarantine is that of a delivery's record; which may be a later one."""
    return (
        isinstance(where, TrackedDelivery)
        and where.assignment is delivery.assignment
        and where.record_offset == delivery.record_offset
    )


def is_copy(one: TrackedDelivery, other: TrackedDelivery) -> bool:
    """Whether two records of a key and an origin offset are the same one."""
    return may_be_one(written_ms(one), written_ms(other))


def is_parked(quarantine: Quarantine | None, delivery: TrackedDelivery) -> bool:
    """Whether a record of the source is in retry topics already.

    It is read anew, or a copy came after its retry partitions were announced.
    """
    offset, key, timestamp = delivery.record_offset, delivery.key, delivery.timestamp
    parked_before = delivery.assignment.parked_before
    if (offset, key, timestamp) in parked_before or (offset, key, None) in parked_before:
        return True
    return quarantine is not None and quarantine.has_at(offset, timestamp)


def _follows(one: TrackedDelivery, other: TrackedDelivery) -> bool:
    """Whether a record is of the same partition as another one, and further on in its log."""
    return other.assignment is one.assignment and other.record_offset > one.record_offset


def is_newer(one: TrackedDelivery, other: TrackedDelivery) -> bool:
    """Whether one of two copies of a record is the later one: that with more redrives, or attempts.

    A hop and a renewal change neither; then it is the one that retention takes later: the one
    further on in their log, whatever the clock said, or of two logs the one that was written later.
    """
    tries, before = _tries(one), _tries(other)
    if tries == before and one.assignment is other.assignment:
        return one.record_offset > other.record_offset
    return (tries, one.timestamp) > (before, other.timestamp)


def _tries(delivery: TrackedDelivery) -> tuple[int, int]:
    envelope = delivery.envelope
    return (0, 0) if envelope is None else (envelope.replays, envelope.attempt)


def has_order(delivery: TrackedDelivery) -> bool:
    """Whether a record is in the order of a key here: it has one, and came from this partition."""
    assignment = delivery.assignment
    own = assignment.source_topic, assignment.partition
    return delivery.key is not None and delivery.origin[:2] == own
