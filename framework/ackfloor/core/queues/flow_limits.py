"""Flow limits: when fetching stops and when it goes on.

Theory. Each limit has two watermarks, because a pause throws the prefetch away: fetching stops
at the limit and goes on at half of it, so that one cycle always delivers at least a prefetch.
Levels of the whole worker: its open records and their bytes. Of each partition: the same, by
default half of the worker's, so that one with a hot key leaves room for the others; the offset
span between its floor and its position (a retry tier: its open records and the bytes that wait,
so that waiting records stay bounded in memory); and its gap set, so that fetching stops before
what is settled above the floor no longer fits into a commit.

Records that wait in tiers leave when their time comes, ten minutes from now perhaps, and nothing
that is new may have to wait for that. So the tiers share a quarter of the worker's limits evenly,
and what they hold beyond it (a batch may overshoot) does not count against the others. The same
holds for a source partition and the records that wait in it behind one that failed (retry in
place): past its share the partition waits, and not the worker. What it has beyond that leaves
memory where the worker holds more than its limits (state/rewinds.py). And for all that a handler
holds whose circuit breaker is not closed: past its share that handler waits.

Most of the time every gate is open and far from its limit. So a look at the levels also notes how
much may be read before any gate can shut, and until then none is looked at again.

Invariant: a partition is paused exactly while one of its gates is shut, and every gate opens
again once its level has fallen to the low mark; levels reach zero when work drains, so a
paused partition always resumes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ackfloor.core.messages.commands import Command, Pause, Resume
from ackfloor.core.records.record import TopicPartition

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import Assignment

MIB = 1024 * 1024
#: Waiting records take one part of this many of the worker's limits.
WAITING_PART = 4


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much a worker holds at once.

    Attributes:
        max_open: open records of the worker.
        max_open_bytes: bytes of their values.
        partition_open: open records of one partition.
        partition_open_bytes: bytes of their values.
        partition_span: offsets between a partition's floor and its position.
        tier_buffer: open records of one retry-tier partition, waiting ones included; less
            where many tier partitions share what waiting records may take of the worker.
    """

    max_open: int = 50_000
    max_open_bytes: int = 256 * MIB
    partition_span: int = 100_000
    tier_buffer: int = 500
    partition_open: int = 25_000
    partition_open_bytes: int = 128 * MIB


class PauseReason(StrEnum):
    """Why a partition is not fetched."""

    HANDLER = "handler"
    """Its handler takes no records."""
    OPEN = "open"
    """The partition's open records, or their bytes."""
    WAITING = "waiting"
    """What waits in it: for its time, in a retry topic, or behind a failed record."""
    SPAN = "span"
    """The offsets from its floor to its position."""
    METADATA = "metadata"
    """What is settled above its floor would soon not fit into a commit."""
    WORKER = "worker"
    """The worker's open records, or their bytes."""


class Gate:
    """One limit with hysteresis: shut at the limit, open again at half of it."""

    __slots__ = ("limit", "shut")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shut = False

    def update(self, level: int) -> bool:
        """Note the level and return whether the gate is shut."""
        if self.shut:
            self.shut = level > self.limit // 2
        else:
            self.shut = level >= self.limit
        return self.shut


class PartitionGates:
    """The limits of one assigned partition.

    Attributes:
        span: of its span; where it is of a retry tier, of its open records.
        open, open_bytes: of its open records.
        held: of records that wait in lanes behind a failed one, where it is of a source.
        bytes: of the bytes that wait there, or for their due time in a tier.
    """

    __slots__ = ("bytes", "held", "open", "open_bytes", "span")

    def __init__(self, limits: FlowLimits, *, tier: bool) -> None:
        self.span = Gate(limits.tier_buffer if tier else limits.partition_span)
        self.open = Gate(limits.partition_open)
        self.open_bytes = Gate(limits.partition_open_bytes)
        # These two are divided anew at each look at the levels.
        self.held = Gate(1)
        self.bytes = Gate(1)


class FlowControl:
    """The levels of one worker and the gates they drive.

    Attributes:
        open_count: open records of the worker.
        open_bytes: bytes of their values.
        any_paused: a partition is paused, as of the last look at the levels.
    """

    __slots__ = (
        "_bytes_gate",
        "_bytes_room",
        "_count_gate",
        "_count_room",
        "_span_room",
        "_tier_bytes_room",
        "_tier_count_room",
        "any_paused",
        "limits",
        "open_bytes",
        "open_count",
    )

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.open_count = 0
        self.open_bytes = 0
        self.any_paused = False
        self._count_gate = Gate(limits.max_open)
        self._bytes_gate = Gate(limits.max_open_bytes)
        #: What may be read before any gate can shut: records, bytes, offsets.
        self._count_room = self._bytes_room = self._span_room = 0
        #: The same of retry topics alone, whose partitions have much less room.
        self._tier_count_room = self._tier_bytes_room = 0

    def replace(self, limits: FlowLimits, assignments: Collection[Assignment]) -> None:
        """Set other limits; the next `balance` pauses and resumes by them."""
        self.limits = limits
        self._count_gate.limit = limits.max_open
        self._bytes_gate.limit = limits.max_open_bytes
        for a in assignments:
            a.gates.open.limit = limits.partition_open
            a.gates.open_bytes.limit = limits.partition_open_bytes
            if a.tier_s is None:
                # Those of the tiers are divided anew at each look.
                a.gates.span.limit = limits.partition_span

    def add(self, count: int, size: int, span: int, *, tier: bool) -> None:
        """Records were opened, and a partition's position has moved by `span`."""
        self.open_count += count
        self.open_bytes += size
        self._count_room -= count
        self._bytes_room -= size
        self._span_room -= span
        if tier:
            self._tier_count_room -= count
            self._tier_bytes_room -= size

    @property
    def steady(self) -> bool:
        """Whether all gates were open at the last look, and what was read since can shut none."""
        return (
            self._count_room > 0
            and self._bytes_room > 0
            and self._span_room > 0
            and self._tier_count_room > 0
            and self._tier_bytes_room > 0
            and not self.any_paused
        )

    @property
    def over(self) -> bool:
        """Whether the worker holds more than its limits, what waits included."""
        limits = self.limits
        return self.open_count > limits.max_open or self.open_bytes > limits.max_open_bytes

    def look_again(self) -> None:
        """Something has changed that is not read or settled."""
        self._count_room = 0

    def sub(self, count: int, size: int) -> None:
        """Records are no longer open here."""
        self.open_count -= count
        self.open_bytes -= size

    def balance(self, assignments: Collection[Assignment], commands: list[Command]) -> None:
        """Command what must be paused or resumed at the present levels."""
        waiting = [
            a
            for a in assignments
            if (a.tier_s is not None or a.held or a.withheld) and not a.stopping
        ]
        self._share(waiting)
        tripped = [a for a in assignments if a.handler.circuit.breaker.is_open and not a.stopping]
        full = self._full(dict.fromkeys([*waiting, *tripped]))
        self.any_paused = False
        pause: list[TopicPartition] = []
        resume: list[tuple[TopicPartition, int]] = []
        for a in assignments:
            if a.stopping:
                # What it still holds drains; nothing that is read of it now would be kept.
                continue
            shut = _shut(a) or full or a.handler.resting or bool(a.awaited)
            self.any_paused |= shut
            self._narrow(a)
            if shut == a.paused:
                continue
            a.paused = shut
            partition = TopicPartition(a.topic, a.partition)
            if shut:
                pause.append(partition)
            else:
                resume.append((partition, a.tracker.position))
        if pause:
            commands.append(Pause(tuple(pause)))
        if resume:
            commands.append(Resume(tuple(resume)))

    def why_paused(self, a: Assignment) -> PauseReason | None:
        """Why a partition is paused, by what is nearest to it; None where it is not.

        As of the last look at the levels.
        """
        if not a.paused:
            return None
        gates, tier = a.gates, a.tier_s is not None
        shut = {
            PauseReason.HANDLER: a.handler.resting,
            PauseReason.OPEN: gates.open.shut or gates.open_bytes.shut,
            PauseReason.WAITING: bool(a.awaited)
            or gates.held.shut
            or gates.bytes.shut
            or (tier and gates.span.shut),
            PauseReason.SPAN: gates.span.shut,
            PauseReason.METADATA: a.commit.metadata_gate.shut,
        }
        return next((reason for reason, is_shut in shut.items() if is_shut), PauseReason.WORKER)

    def _narrow(self, a: Assignment) -> None:
        """Note how much may be read before one of the gates of a partition can shut."""
        gates, count = a.gates, len(a.tracker.open)
        records, size = gates.open.limit - count, gates.open_bytes.limit - a.open_bytes
        if a.tier_s is not None:
            records = min(records, gates.span.limit - count)
            size = min(size, gates.bytes.limit - _tier_bytes(a))
            self._tier_count_room = min(self._tier_count_room, records)
            self._tier_bytes_room = min(self._tier_bytes_room, size)
            return
        if a.handler.lanes.holding:
            # What comes behind a failed record counts twice.
            records = 0
        else:
            self._span_room = min(self._span_room, gates.span.limit - a.tracker.span())
        self._count_room = min(self._count_room, records)
        self._bytes_room = min(self._bytes_room, size)

    def _share(self, waiting: Sequence[Assignment]) -> None:
        """Divide what waiting records may take; none gets less than one record."""
        limits, parts = self.limits, WAITING_PART * (len(waiting) or 1)
        count = max(1, limits.max_open // parts)
        size = max(1, limits.max_open_bytes // parts)
        for a in waiting:
            a.gates.bytes.limit = size
            if a.tier_s is None:
                a.gates.held.limit = count
            else:
                a.gates.span.limit = min(limits.tier_buffer, count)

    def _full(self, waiting: Collection[Assignment]) -> bool:
        """Whether the worker holds too much, waiting records counted as their part at most."""
        limits = self.limits
        count = sum([_waits(a) for a in waiting]) - limits.max_open // WAITING_PART
        size = sum([_waiting_bytes(a) for a in waiting]) - limits.max_open_bytes // WAITING_PART
        # What no longer waits would count, without having been read.
        self._count_room = limits.max_open - self.open_count if count <= 0 and size <= 0 else 0
        self._bytes_room = limits.max_open_bytes - self.open_bytes
        self._span_room = limits.partition_span
        self._tier_count_room, self._tier_bytes_room = self._count_room, self._bytes_room
        full = self._count_gate.update(self.open_count - max(0, count))
        return self._bytes_gate.update(self.open_bytes - max(0, size)) or full


def _shut(a: Assignment) -> bool:
    """Whether a gate of a partition is shut at its present levels; each is looked at."""
    tracker, gates = a.tracker, a.gates
    if a.tier_s is None:
        shut = gates.span.update(tracker.span())
        shut |= gates.held.update(a.held)
        shut |= gates.bytes.update(a.held_bytes)
    else:
        shut = gates.span.update(len(tracker.open))
        shut |= gates.bytes.update(_tier_bytes(a))
    shut |= gates.open.update(len(tracker.open))
    shut |= gates.open_bytes.update(a.open_bytes)
    return shut | a.commit.metadata_gate.update(a.commit.metadata_length)


def _waits(a: Assignment) -> int:
    if a.handler.circuit.breaker.is_open:
        # What was not tried yet waits as well, and has a limit of its own.
        return len(a.tracker.open)
    if a.tier_s is None:
        return max(a.held, len(a.withheld))
    return max(_tier_count(a), len(a.withheld))


def _waiting_bytes(a: Assignment) -> int:
    if a.handler.circuit.breaker.is_open:
        return a.open_bytes
    size = a.held_bytes if a.tier_s is None else _tier_bytes(a)
    return max(size, a.withheld.size)


def _tier_count(a: Assignment) -> int:
    """Records that wait in a retry partition: for their time, or behind a failed one."""
    return len(a.tracker.open) if a.handler.rules.quarantines else len(a.waiting)


def _tier_bytes(a: Assignment) -> int:
    return a.open_bytes if a.handler.rules.quarantines else a.waiting.size
