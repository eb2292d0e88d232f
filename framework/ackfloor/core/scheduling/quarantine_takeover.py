"""Takeovers: a partition's new owner finds out which of its keys are quarantined.

Theory. Which keys are, and what waits in each, is what is open in the retry partitions that belong
to a source partition. The source of records reads their keys and origins before it announces them
(kafka/consume), so all of it is known when the last of these partitions comes; until then nothing
of them starts. Of a record that was written twice (its park was confirmed, and no commit after it)
the newest copy counts, unless retention takes that one before it was read.

A source partition is read from its floor: records of a quarantined key may be there that were not
parked, below the origin offset of one that was. So a record of a retry partition waits until the
source partition was read beyond its origin.

A source topic that was created anew, or truncated, has other records at the offsets of those that
are parked. So a record is a copy of another only where its key and its timestamp say so as well,
also where both are parked; and what is parked with an origin beyond the source's end does not wait
until it has as many records.

Invariants (tests/framework/core/scheduling/test_quarantine_takeover.py):

T1  nothing of a partition starts before all of its retry partitions are known.
T2  of each record that was found, one copy is kept, and one that was redriven before any other;
    the others are settled unread only while that one is surely there, or was read.
T3  a record of a retry partition has its turn when all before it in the source were read, as far
    as the source has so many; and what goes with a dead letter has it when that was read of all
    that was parked.
T4  a record of the source is settled as a copy only of the same record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ackfloor.core.messages.events import QuarantinesTakenOver
from ackfloor.core.queues.quarantine import Unread, may_be_one
from ackfloor.core.records.record import Now, ParkedRecord, StartPosition
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery
from ackfloor.core.state.assignment import Assignment
from ackfloor.core.state.worker_state import WorkerState

Parked = Sequence[ParkedRecord]

#: Seconds for which a partition waits for its retry partitions before that is a fault.
LATE_S = 30.0
FAULT = "quarantine"


class _Copy(NamedTuple):
    """A record as it was found in a retry partition."""

    assignment: Assignment
    record: ParkedRecord

    def is_newer(self, other: _Copy) -> bool:
        """Whether it is the later one of two copies: see `queues.quarantine.is_newer`."""
        mine, theirs = self.record, other.record
        tries, before = (mine.replays, mine.attempt), (theirs.replays, theirs.attempt)
        if tries == before and self.assignment is other.assignment:
            return mine.offset > theirs.offset
        return (tries, mine.timestamp_ms) >= (before, theirs.timestamp_ms)

    @property
    def since_ms(self) -> int:
        """Since when its key is quarantined at least, in wall-clock ms."""
        return self.record.timestamp_ms if self.record.failed_ms is None else self.record.failed_ms

    @property
    def unread(self) -> Unread:
        """Its place in a quarantine."""
        return Unread(self.assignment, self.record.origin_timestamp_ms)


class Takeovers:
    """The partitions that wait for each other, and the keys that wait for their source."""

    __slots__ = ("_arriving", "_since_s", "_state", "_waiting", "deleted")

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        #: Retry topics that are not waited for, because they were deleted. A worker that has no
        #: partition of one is told when its source's next partition is announced.
        self.deleted: set[str] = set()
        #: (source topic, partition) -> those of its partitions that came, with what waits in them.
        self._arriving: dict[tuple[str, int], dict[Assignment, Parked]] = {}
        #: Since when the first of them waits, until that is a fault (monotonic seconds).
        self._since_s: dict[tuple[str, int], float] = {}
        #: Source partition -> the keys whose head lies beyond what was read of it, and where.
        self._waiting: dict[Assignment, list[tuple[int, LaneKey]]] = {}

    def assigned(self, assignment: Assignment, start: StartPosition, now: Now) -> list[Assignment]:
        """A partition came, with what waits in it; returns those that may begin by that."""
        group = assignment.source_topic, assignment.partition
        self.deleted.discard(assignment.topic)
        if start.absent is not None:
            self.deleted -= self._retry_topics(assignment.topic)
            self.deleted |= start.absent
        self._arriving.setdefault(group, {})[assignment] = start.parked
        began = self._look(group, now)
        if start.absent:
            for other in list(self._arriving):
                began += self._look(other, now)
        return began

    def _look(self, group: tuple[str, int], now: Now) -> list[Assignment]:
        """Let the partitions of a group begin if they wait for no other one."""
        arriving = self._arriving[group]
        missing = {
            topic
            for topic in self._topics(*group)
            if (topic, group[1]) not in self._state.assignments
        }
        for each in arriving:
            each.awaited = missing
        self._state.flow.look_again()
        self._state.unbalanced = True
        if missing:
            self._since_s.setdefault(group, now.mono_s)
            return []
        self._over(group)
        self._begin(arriving, now)
        return list(arriving)

    def _over(self, group: tuple[str, int]) -> None:
        del self._arriving[group]
        self._since_s.pop(group, None)
        self._state.faults.clear(FAULT, _named(group))

    def report(self, now: Now) -> None:
        """Name the partitions that have waited for long for one of their retry partitions."""
        for group, since_s in list(self._since_s.items()):
            if now.mono_s - since_s >= LATE_S:
                del self._since_s[group]
                missing = sorted(next(iter(self._arriving[group])).awaited)
                why = (
                    f"nothing of partition {_named(group)} is handled before what waits for it in "
                    f"{', '.join(missing)} is known: see that the brokers have that topic"
                )
                self._state.faults.put(FAULT, _named(group), why, now.wall_ms)

    def _topics(self, source_topic: str, partition: int) -> list[str]:
        """A source topic and its retry topics, as far as they have such a partition."""
        counts = self._state.parking.partitions
        return [
            topic
            for topic, route in self._state.routes.items()
            if route.source_topic == source_topic
            and topic not in self.deleted
            and partition < counts.get(topic, partition + 1 if route.tier_s is None else 0)
        ]

    def _retry_topics(self, source_topic: str) -> set[str]:
        routes = self._state.routes.items()
        return {topic for topic, route in routes if route.source_topic == source_topic != topic}

    def _begin(self, arriving: dict[Assignment, Parked], now: Now) -> None:
        newest: dict[tuple[bytes, int], list[_Copy]] = {}
        for assignment in sorted(arriving, key=lambda each: each.tier_s or 0.0):
            for record in arriving[assignment]:
                if _is_removed(record, assignment):
                    continue
                _keep(newest.setdefault((record.key, record.origin_offset), []), assignment, record)
        found: dict[bytes, list[tuple[int, Unread]]] = {}
        since_ms: dict[bytes, int] = {}
        for (key, offset), kept in newest.items():
            found.setdefault(key, []).extend((offset, copy.unread) for copy in kept)
            known_ms = since_ms.get(key, now.wall_ms)
            since_ms[key] = min(known_ms, *(copy.since_ms for copy in kept))
        for key, places in found.items():
            self._quarantine(key, places, since_ms[key])
        first = next(iter(arriving))
        if found:
            first.handler.lanes.oldest_first()
            group = first.source_topic, first.partition
            name = first.handler.rules.name
            self._state.events.append(QuarantinesTakenOver(*group, name, len(found)))
        source = self._state.assignments.get((first.source_topic, first.partition))
        if source is None:
            # It has fewer partitions: what is here belongs to others, which it is written to.
            return
        for (key, offset), kept in newest.items():
            source.parked_before.update((offset, key, c.record.origin_timestamp_ms) for c in kept)
            source.parked_until = max(source.parked_until, offset)

    def _quarantine(self, key: bytes, places: Sequence[tuple[int, Unread]], since_ms: int) -> None:
        first = places[0][1].assignment
        name = first.source_topic, first.partition, key
        quarantine = first.handler.lanes.quarantined.get(name)
        if quarantine is None:
            head = min(offset for offset, _ in places)
            first.handler.lanes.inherit(name, since_ms, head).fill(places)
        else:
            # One of its retry partitions came later than the others.
            quarantine.since_ms = min(quarantine.since_ms, since_ms)
            for offset, unread in places:
                if not quarantine.has_at(offset, unread.written_ms):
                    quarantine.add(offset, unread)
                elif quarantine.doubts(offset):
                    quarantine.put(offset, unread)

    def dropped(self, gone: Sequence[Assignment]) -> None:
        """Partitions are gone."""
        for assignment in gone:
            self._waiting.pop(assignment, None)
            group = assignment.source_topic, assignment.partition
            arriving = self._arriving.get(group)
            if arriving is not None and arriving.pop(assignment, None) is not None and not arriving:
                self._over(group)

    def copies_left(self, group: tuple[str, int]) -> None:
        """A retry partition left, perhaps alone, because its log was truncated.

        Copies that were found there may be gone: only what is still quarantined has one.
        """
        source = self._state.assignments.get(group)
        if source is not None and source.parked_before:
            quarantined = source.handler.lanes.quarantined
            source.parked_before = {
                (offset, key, written_ms)
                for offset, key, written_ms in source.parked_before
                if (quarantine := quarantined.get((*group, key))) is not None
                and quarantine.has_at(offset, written_ms)
            }

    def is_superseded(self, delivery: TrackedDelivery) -> bool:
        """Whether a newer copy of a record was found, which no retention may have taken since."""
        assignment = delivery.assignment
        if delivery.record_offset not in assignment.superseded:
            return False
        quarantine = assignment.handler.lanes.quarantined.get(delivery.lane_key(True))
        return quarantine is None or not quarantine.is_doubtful(delivery)

    # The source.

    def has_read(self, assignment: Assignment, offset: int, key: LaneKey) -> bool:
        """Whether the source was read beyond an origin offset; if not, its key is noted."""
        source = self._state.assignments.get((assignment.source_topic, assignment.partition))
        if source is None:
            return False
        if _reached(source, offset):
            return True
        heappush(self._waiting.setdefault(source, []), (offset, key))
        return False

    def has_read_parked(self, assignment: Assignment, key: LaneKey) -> bool:
        """The same of all that was parked when the partition came."""
        source = self._state.assignments.get((assignment.source_topic, assignment.partition))
        return source is not None and self.has_read(assignment, source.parked_until, key)

    def _read_of(self, source: Assignment) -> list[LaneKey]:
        """Those of one source."""
        waiting = self._waiting[source]
        keys: list[LaneKey] = []
        while waiting and _reached(source, waiting[0][0]):
            keys.append(heappop(waiting)[1])
        if not waiting:
            del self._waiting[source]
        return keys

    def read_by_now(self) -> Iterator[tuple[LaneKey, Assignment]]:
        """The keys whose head does not wait for its source any more; each is returned once.

        A position moves also where nothing was read.
        """
        for source in list(self._waiting):
            for key in self._read_of(source):
                yield key, source


def _keep(kept: list[_Copy], assignment: Assignment, record: ParkedRecord) -> None:
    """Keep a copy beside those of other records with its key and origin offset, if it is newer."""
    copy = _Copy(assignment, record)
    for number, other in enumerate(kept):
        if may_be_one(record.origin_timestamp_ms, other.record.origin_timestamp_ms):
            later, earlier = (copy, other) if copy.is_newer(other) else (other, copy)
            kept[number] = later
            earlier.assignment.superseded[earlier.record.offset] = earlier.record
            return
    kept.append(copy)


def _is_removed(record: ParkedRecord, assignment: Assignment) -> bool:
    """Whether retention took a record between its announcement and now: it can't be read."""
    tracker = assignment.tracker
    return record.offset < tracker.position and record.offset not in tracker.open


def _reached(source: Assignment, offset: int) -> bool:
    """Whether a source was read beyond an offset, or to an end below it that it had at the start.

    Such an end is that of another log than the one that had this offset.
    """
    position, end = source.tracker.position, source.log_end
    return position > offset or (end is not None and end <= min(offset, position))


def _named(group: tuple[str, int]) -> str:
    return f"{group[0]}/{group[1]}"
