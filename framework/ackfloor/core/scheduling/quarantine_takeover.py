"""Takeovers: a partition's new owner finds out which of its keys are quarantined.

Theory. Which keys are, and what waits in each, is what is open in the retry partitions that belong
to a source partition. The source of records reads their keys and origins before it announces them
(kafka/consume), so all of it is known when the last of these partitions comes; until then nothing
of them starts. Of a record that was written twice (its park was confirmed, and no commit after it)
the newest copy counts.

A source partition is read from its floor: records of a quarantined key may be there that were not
parked, below the origin offset of one that was. So a record of a retry partition waits until the
source partition was read beyond its origin.

Invariants (tests/framework/core/scheduling/test_quarantine_takeover.py):

T1  nothing of a partition starts before all of its retry partitions are known.
T2  of each record that was found, one copy is kept, and one that was redriven before any other.
T3  a record of a retry partition has its turn when all before it in the source were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ackfloor.core.records.record import Now, ParkedRecord
from ackfloor.core.records.tracked_delivery import LaneKey
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

    @property
    def newness(self) -> tuple[int, int]:
        """Which of two copies is the later one: see `quarantined_keys`."""
        return self.record.replays, self.record.attempt


class Takeovers:
    """The partitions that wait for each other, and the keys that wait for their source."""

    __slots__ = ("_arriving", "_since_s", "_state", "_waiting")

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        #: (source topic, partition) -> those of its partitions that came, with what waits in them.
        self._arriving: dict[tuple[str, int], dict[Assignment, Parked]] = {}
        #: Since when the first of them waits, until that is a fault (monotonic seconds).
        self._since_s: dict[tuple[str, int], float] = {}
        #: Source partition -> the keys whose head lies beyond what was read of it, and where.
        self._waiting: dict[Assignment, list[tuple[int, LaneKey]]] = {}

    def assigned(self, assignment: Assignment, parked: Parked, now: Now) -> list[Assignment]:
        """A partition came, with what waits in it; returns those that may begin by that."""
        group = assignment.source_topic, assignment.partition
        arriving = self._arriving.setdefault(group, {})
        arriving[assignment] = parked
        missing = {
            topic
            for topic in self._topics(*group)
            if (topic, assignment.partition) not in self._state.assignments
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
        """A source topic, and its retry topics that have such a partition."""
        counts = self._state.parking.partitions
        return [
            topic
            for topic, route in self._state.routes.items()
            if route.source_topic == source_topic
            and (route.tier_s is None or partition < counts.get(topic, 0))
        ]

    def _begin(self, arriving: dict[Assignment, Parked], now: Now) -> None:
        newest: dict[tuple[bytes, int], _Copy] = {}
        for assignment in sorted(arriving, key=lambda each: each.tier_s or 0.0):
            for record in arriving[assignment]:
                copy = _Copy(assignment, record)
                other = newest.setdefault((record.key, record.origin_offset), copy)
                if other is copy:
                    continue
                later, earlier = (copy, other) if copy.newness >= other.newness else (other, copy)
                newest[record.key, record.origin_offset] = later
                earlier.assignment.superseded.add(earlier.record.offset)
        found: dict[bytes, list[tuple[int, Assignment]]] = {}
        for (key, offset), copy in newest.items():
            found.setdefault(key, []).append((offset, copy.assignment))
        for key, places in found.items():
            self._quarantine(key, places, now)
        first = next(iter(arriving))
        source = self._state.assignments[first.source_topic, first.partition]
        source.parked_before.update(offset for _, offset in newest)

    def _quarantine(self, key: bytes, places: Sequence[tuple[int, Assignment]], now: Now) -> None:
        first = places[0][1]
        name = first.source_topic, first.partition, key
        quarantine = first.handler.lanes.quarantined.get(name)
        if quarantine is None:
            first.handler.lanes.quarantine(name, now.wall_ms).fill(places)
        else:
            # One of its retry partitions came later than the others.
            for offset, assignment in places:
                if offset not in quarantine:
                    quarantine.put(offset, assignment)

    def dropped(self, gone: Sequence[Assignment]) -> None:
        """Partitions are gone."""
        for assignment in gone:
            self._waiting.pop(assignment, None)
            group = assignment.source_topic, assignment.partition
            arriving = self._arriving.get(group)
            if arriving is not None and arriving.pop(assignment, None) is not None and not arriving:
                self._over(group)

    # The source.

    def has_read(self, assignment: Assignment, offset: int, key: LaneKey) -> bool:
        """Whether the source was read beyond an origin offset; if not, its key is noted."""
        source = self._state.assignments.get((assignment.source_topic, assignment.partition))
        if source is None:
            return False
        if source.tracker.position > offset:
            return True
        heappush(self._waiting.setdefault(source, []), (offset, key))
        return False

    def read_by_now(self, source: Assignment) -> list[LaneKey]:
        """The keys whose head does not wait for the source any more; each is returned once."""
        waiting = self._waiting.get(source)
        if waiting is None:
            return []
        keys: list[LaneKey] = []
        while waiting and waiting[0][0] < source.tracker.position:
            keys.append(heappop(waiting)[1])
        if not waiting:
            del self._waiting[source]
        return keys

    def all_read_by_now(self) -> Iterator[tuple[LaneKey, Assignment]]:
        """The same of all sources: a position moves also where nothing was read."""
        for source in list(self._waiting):
            for key in self.read_by_now(source):
                yield key, source


def _named(group: tuple[str, int]) -> str:
    return f"{group[0]}/{group[1]}"
