"""QuarantineOrders: what an operator sees of quarantined keys, and does about their heads.

Theory. As with blocked lanes (`lane_orders`), an operator moves a head that waits: it is tried now,
or at another time; or it ends, and those behind it go on or go with it. A head that is held is in
the dead-letter topic already, so nothing can become of it: its key is freed by trying or discarding
it, and by a word on those behind it. What is being written, is not read yet, is queued or runs
stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from ackfloor.core.messages.lane_order import (
    MOST_WRITES,
    PARKED,
    TOO_MANY,
    Action,
    LaneAnswer,
    LaneOrder,
)
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.parking.parking import source_envelope
from ackfloor.core.queues.quarantine import Quarantine
from ackfloor.core.records.envelope import Envelope
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.blocked_lanes import MOST_SHOWN, Head, discarded, last_outcome
from ackfloor.core.scheduling.quarantine_renewal import is_held
from ackfloor.core.scheduling.quarantined_keys import Quarantines
from ackfloor.core.state.assignment import AfterDeadLetter, Assignment, HandlerState
from ackfloor.core.state.snapshot import BlockedLane, BlockedLanes
from ackfloor.core.state.worker_state import WorkerState


class QuarantineOrders:
    """Acts on the quarantined keys of a worker; only the owner thread calls it."""

    __slots__ = ("_outbox", "_quarantines", "_state")

    def __init__(self, state: WorkerState, outbox: Outbox, quarantines: Quarantines) -> None:
        self._state = state
        self._outbox = outbox
        self._quarantines = quarantines

    def carry_out(
        self,
        order: LaneOrder,
        quarantined: Sequence[Quarantine],
        answer: LaneAnswer,
        now: Now,
    ) -> None:
        """Do to quarantined keys what an operator wants; adds to the answer."""
        left, heads = Counter(answer.left), dict[Assignment, set[int]]()
        for quarantine in quarantined:
            head, doing = head_of(quarantine)
            if order.action is Action.PARK:
                left[PARKED] += 1
            elif head is None or not _may_move(doing, order):
                left[doing] += 1
            elif order.action is Action.DEAD_LETTER and answer.done >= MOST_WRITES:
                left[TOO_MANY] += 1
            else:
                answer.done += 1
                answer.freed += doing is Head.HELD and not order.with_behind
                if order.dry_run:
                    answer.places.append((head.topic, head.partition, head.record_offset))
                    continue
                if doing is Head.HELD:
                    after: AfterDeadLetter = "dead_letter" if order.with_behind else "continue"
                    self._quarantines.release(quarantine, head, after, now)
                else:
                    heads.setdefault(head.assignment, set()).add(head.record_offset)
        for assignment, offsets in heads.items():
            # At once: each time it looks at all that waits there.
            for due_s, waits in assignment.waiting.take(offsets):
                self._move(waits, due_s, order, now)
        answer.left = dict(left)
        self._state.unbalanced = self._state.flow.any_paused
        self._state.flow.look_again()

    @staticmethod
    def wanted(handler: HandlerState, order: LaneOrder, found: set[int]) -> list[Quarantine]:
        """The quarantined keys of a handler that an order is for; adds to what was found."""
        quarantined: list[Quarantine] = []
        places = {each: n for n, each in enumerate(order.wanted)}
        for quarantine in handler.lanes.quarantined.values():
            if handler.lanes.is_blocked(quarantine.key):
                # Its head is withheld, which blocks its lane.
                continue
            topic, partition, key = quarantine.key
            names: set[object] = {key, (topic, partition, quarantine.head)}
            head, _ = head_of(quarantine)
            if head is not None:
                if head.assignment.stopping:
                    continue
                names.add((head.topic, head.partition, head.record_offset))
            here = {places[name] for name in names if name in places}
            if here or not order.wanted:
                found |= here
                quarantined.append(quarantine)
        return quarantined

    def _move(self, head: TrackedDelivery, due_s: float, order: LaneOrder, now: Now) -> None:
        if order.action is Action.RETRY:
            self._wait(head, min(due_s, now.mono_s), now)
        elif order.action is Action.DELAY:
            self._wait(head, now.mono_s + order.delay_s, now)
        elif order.action is Action.DISCARD:
            self._discard(head, order, now)
        else:
            rest = head.assignment.handler.rules.after_dead_letter
            if order.with_behind is not None:
                rest = "dead_letter" if order.with_behind else "continue"
            self._outbox.bury(head, now, after=rest)

    def _wait(self, head: TrackedDelivery, due_s: float, now: Now) -> None:
        due_ms = now.wall_ms + round((due_s - now.mono_s) * 1000)
        envelope = head.envelope or source_envelope(head)
        head.envelope = envelope._replace(not_before_ms=due_ms, retry_at_ms=None)
        self._state.wait(head, due_s)

    def _discard(self, head: TrackedDelivery, order: LaneOrder, now: Now) -> None:
        assignment = head.assignment
        assignment.end(head)
        self._state.settle(head)
        self._quarantines.ended(head, now)
        self._state.events.append(discarded(head, order.reason))


def head_of(quarantine: Quarantine) -> tuple[TrackedDelivery | None, Head]:
    """The head of a quarantined key, if it is here, and what it is doing."""
    offset = quarantine.head
    where = None if offset is None else quarantine.at(offset)
    if not isinstance(where, TrackedDelivery):
        return None, Head.MOVING
    newest = where.assignment.tracker.open.get(where.record_offset, where)
    if is_held(newest):
        return newest, Head.HELD
    if newest.record_offset in newest.assignment.withheld:
        return newest, Head.WITHHELD
    if newest.retrying:
        return newest, Head.RUNNING if newest.started_s and not newest.closed else Head.QUEUED
    return newest, Head.WAITING if newest is quarantine.current else Head.MOVING


def _may_move(doing: Head, order: LaneOrder) -> bool:
    """Whether an order does something to a head, or to those behind one that is held."""
    if doing is not Head.HELD:
        return doing is Head.WAITING
    if order.action is Action.DEAD_LETTER:
        return order.with_behind is not None
    return order.action is not Action.DELAY


def quarantined_lanes(handler: HandlerState, state: WorkerState, now: Now) -> BlockedLanes:
    """A handler's quarantined keys, described those that have been quarantined for longest.

    There may be a hundred thousand: only those that are described are looked at.
    """
    lanes = handler.lanes
    if not lanes.quarantined:
        return BlockedLanes()
    count = len(lanes.quarantined)
    shown = [_describe(q, state, now) for q in islice(lanes.quarantined.values(), MOST_SHOWN)]
    behind = lanes.tally.count + lanes.pending - count
    return BlockedLanes(count, behind, shown[0].since_ms, tuple(shown))


def _describe(quarantine: Quarantine, state: WorkerState, now: Now) -> BlockedLane:
    topic, partition, key = quarantine.key
    head, doing = head_of(quarantine)
    envelope = (head.envelope if head else None) or Envelope()
    failed = head is not None and envelope.error_type is not None
    return BlockedLane(
        topic=topic,
        partition=partition,
        offset=-1 if quarantine.head is None else quarantine.head,
        key=state.shown_key(key if isinstance(key, bytes) else None),
        head=doing,
        attempt=envelope.attempt,
        error=state.shown(last_outcome(head).failure) if head and failed else "",
        since_ms=quarantine.since_ms,
        next_try_ms=(
            max(now.wall_ms, envelope.not_before_ms or 0) if doing is Head.WAITING else None
        ),
        behind=quarantine.behind,
        at_least=quarantine.inherited,
    )
