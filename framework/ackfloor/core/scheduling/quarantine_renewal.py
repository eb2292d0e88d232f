"""Renewals: what waits behind the head of a quarantined key is written anew before it does harm.

Theory. What was read of a retry partition and waits behind a head takes room in memory. Where that
keeps the partition from being read, and the head of a key is further on in it, or a record that is
in no key's order, what waits is written behind that one. So it is before its topic's retention
would take it. A renewal is a hop: the record stays what it was, and spends no attempt.

A record of the source may wait so as well: when its copy in a retry topic may have been removed,
it was read again. While retry partitions are not read, it is written behind the others of its key.

What has no room comes again and again, so more is written than is handled. Two rules bound that.
Records whose head goes on soon stay in memory, where these are less than half: else each of them
would have to come round before it can follow its head. And a partition rests after a renewal.

Invariant. A record is renewed only while it is not the next one of its key, or is there to hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf

from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.queues.quarantine import Quarantine, is_same
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: Seconds between two looks for retry partitions that are full of what waits, and so many more for
#: each key that had to be looked at.
LOOK_S, LOOK_EACH_S = 0.1, 5e-5
#: Seconds after which partitions are looked at again in which nothing but heads was found: a record
#: before one of them may have been parked meanwhile, or what was read may not have had its place.
ONLY_HEADS_S = 5.0
#: Seconds that a partition rests after a renewal, for each record that was renewed.
REST_EACH_S = 0.002
#: Seconds after which what waits in a full partition is renewed, although nobody is known to wait
#: for what comes behind it: that may have been redriven, or written by another worker.
UNKNOWN_S = 300.0
#: Seconds between two looks for what has waited for long.
AGE_LOOK_S = 60.0
#: What has waited for so long is written anew: a seventh of the shortest retention of a retry
#: topic (kafka/topics/topic_requirements.py).
RENEW_MS = 86_400_000


class Renewals:
    """Writes anew what waits in retry partitions; only the owner thread calls it."""

    __slots__ = (
        "_age_look_s",
        "_full_s",
        "_look_s",
        "_of_source",
        "_only_heads",
        "_outbox",
        "_rests_until_s",
        "_state",
    )

    def __init__(self, state: WorkerState, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._look_s = self._age_look_s = 0.0
        #: Full partitions -> since when (monotonic seconds), or when they were renewed last.
        self._full_s: dict[Assignment, float] = {}
        #: Partitions that were renewed lately -> until when they are not again.
        self._rests_until_s: dict[Assignment, float] = {}
        #: Handler -> how far its full partitions were read when nothing but heads was found there,
        #: and until when nothing else is expected there.
        self._only_heads: dict[HandlerState, tuple[dict[Assignment, int], float]] = {}
        #: What was read of the source and waits, unwritten, in its key's order, or did once.
        self._of_source: dict[TrackedDelivery, Quarantine] = {}

    def waits_unwritten(self, quarantine: Quarantine, delivery: TrackedDelivery) -> None:
        """A record of the source has its place in its key's order, and no copy that is known."""
        self._of_source[delivery] = quarantine

    def tick(self, now: Now) -> None:
        """Look for what is to be written anew, if it is time to."""
        handlers = [h for h in self._state.handlers.values() if h.lanes.quarantined]
        if now.mono_s >= self._look_s:
            looked = sum(self._make_room(handler, now) for handler in handlers)
            self._look_s = now.mono_s + LOOK_S + LOOK_EACH_S * looked
        if now.mono_s >= self._age_look_s:
            self._age_look_s = now.mono_s + AGE_LOOK_S
            self._forget_ended()
            for handler in handlers:
                self._renew_old(handler, now)

    def next_s(self) -> float:
        """Monotonic seconds of the next look for full partitions; infinity where there are none."""
        handlers = self._state.handlers.values()
        full = any(handler.lanes.quarantined and self._full(handler) for handler in handlers)
        return self._look_s if full else inf

    def _tiers(self, handler: HandlerState) -> set[Assignment]:
        """A handler's retry partitions."""
        return {
            a
            for a in self._state.assignments.values()
            if a.handler is handler and a.tier_s is not None and not a.stopping
        }

    def _full(self, handler: HandlerState) -> set[Assignment]:
        """Those that are not read at the moment."""
        return {a for a in self._tiers(handler) if a.paused}

    def _make_room(self, handler: HandlerState, now: Now) -> int:
        """Renew what keeps a head from being read; returns how many keys were looked at for it."""
        partitions = {a: a.tracker.position for a in self._full(handler)}
        self._note_full(handler, partitions, now)
        if partitions and self._of_source:
            self._write_source(handler, now)
        before, until_s = self._only_heads.get(handler, (None, 0.0))
        if not partitions or (before == partitions and now.mono_s < until_s):
            return 0
        behind = [
            (quarantine, delivery)
            for quarantine, delivery in _read(handler, partitions)
            if delivery.origin.offset != quarantine.head or is_held(delivery)
        ]
        if not behind:
            # As with many keys: there is nothing to look for until more was read.
            self._only_heads[handler] = partitions, now.mono_s + ONLY_HEADS_S
            return 0
        resting = self._rests_until_s.items()
        self._rests_until_s = {a: until_s for a, until_s in resting if until_s > now.mono_s}
        full = {delivery.assignment for _, delivery in behind} - self._rests_until_s.keys()
        if not full:
            return 0
        wanted, looked = _wanted(handler, full)
        wanted |= {a for a in full if a.others_unread or now.mono_s - self._full_s[a] >= UNKNOWN_S}
        self._full_s.update(dict.fromkeys(wanted, now.mono_s))
        for assignment in wanted:
            self._renew(
                assignment, [pair for pair in behind if pair[1].assignment is assignment], now
            )
        return looked

    def _renew(
        self, assignment: Assignment, behind: Sequence[tuple[Quarantine, TrackedDelivery]], now: Now
    ) -> None:
        """Write what waits in a partition behind all that is there."""
        renewed = [delivery for quarantine, delivery in behind if not _goes_on(quarantine)]
        if 2 * len(renewed) < len(behind):
            renewed = [delivery for _, delivery in behind]
        self._rests_until_s[assignment] = now.mono_s + REST_EACH_S * len(renewed)
        for delivery in renewed:
            self._outbox.hop(delivery, now)

    def _write_source(self, handler: HandlerState, now: Now) -> None:
        """Write what was read of the source and waits behind the others of its key."""
        self._forget_ended()
        theirs = [each for each in self._of_source if each.assignment.handler is handler]
        for delivery in [each for each in theirs if not each.assignment.stopping]:
            del self._of_source[delivery]
            self._outbox.behind(delivery, now)

    def _forget_ended(self) -> None:
        """Of what was read of the source, keep only what still waits."""
        self._of_source = {
            delivery: quarantine
            for delivery, quarantine in self._of_source.items()
            if not delivery.closed and _waiting(quarantine, delivery) is not None
        }

    def _note_full(self, handler: HandlerState, full: Collection[Assignment], now: Now) -> None:
        for assignment in [a for a in self._full_s if a.handler is handler and a not in full]:
            del self._full_s[assignment]
        for assignment in full:
            self._full_s.setdefault(assignment, now.mono_s)

    def _renew_old(self, handler: HandlerState, now: Now) -> None:
        for _, delivery in list(_read(handler, self._tiers(handler))):
            if now.wall_ms - delivery.timestamp >= RENEW_MS:
                self._outbox.hop(delivery, now)


def _read(
    handler: HandlerState, tiers: Collection[Assignment]
) -> Iterator[tuple[Quarantine, TrackedDelivery]]:
    """What was read of retry partitions and waits, but for heads that have their turn.

    It goes over what was read, not over all keys: that is bounded, and less by far.
    """
    quarantined = handler.lanes.quarantined
    for assignment in tiers:
        for delivery in assignment.tracker.open.values():
            quarantine = quarantined.get(delivery.lane_key(True))
            if quarantine is not None and (where := _waiting(quarantine, delivery)) is not None:
                yield quarantine, where


def _waiting(quarantine: Quarantine, delivery: TrackedDelivery) -> TrackedDelivery | None:
    """What is at a record's place in its key's order: the record, before it has its turn."""
    where = quarantine.at(delivery.origin.offset) if quarantine.has(delivery) else None
    if not isinstance(where, TrackedDelivery) or where is quarantine.current:
        return None
    return where if is_same(where, delivery) else None


def _goes_on(quarantine: Quarantine) -> bool:
    """Whether its head is here, or on its way, and is not there to hold the others."""
    head = quarantine.head
    where = None if head is None else quarantine.at(head)
    if isinstance(where, TrackedDelivery):
        return not is_held(where)
    return isinstance(where, PendingWrite)


def _wanted(handler: HandlerState, full: set[Assignment]) -> tuple[set[Assignment], int]:
    """Which of these have to be read for some key to go on; and how many keys were looked at."""
    wanted: set[Assignment] = set()
    looked = 0
    for looked, quarantine in enumerate(handler.lanes.quarantined.values(), 1):  # noqa: B007
        wanted |= quarantine.unread() & full
        if len(wanted) == len(full):
            break
    return wanted, looked


def is_held(delivery: TrackedDelivery) -> bool:
    """Whether a record is in the dead-letter topic, and holds its key."""
    envelope = delivery.envelope
    return envelope is not None and envelope.reason is Reason.HELD
