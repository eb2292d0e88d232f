"""Blocked lanes: ordered lanes whose head failed, and what each of them waits for.

Theory. A lane is blocked from when its head fails until that record is settled, or has left for a
retry topic. Its head waits for its next delivery, because of its backoff (`retry_in_place`) or
because the circuit breaker withholds it (`withheld`); or it is being delivered; or it is being
written to the dead-letter topic. An error or an attempt is not stored for this: the head has them.
"""

from __future__ import annotations

from enum import StrEnum
from heapq import nsmallest

from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT, Failed, Rejected
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.snapshot import BlockedLane, BlockedLanes
from ackfloor.core.state.worker_state import WorkerState

#: How many of a handler's blocked lanes a snapshot describes.
MOST_SHOWN = 20


class Head(StrEnum):
    """What a blocked lane's head is doing."""

    WAITING = "waiting"
    WITHHELD = "withheld"
    QUEUED = "queued"
    RUNNING = "running"
    DEAD_LETTERING = "dead_lettering"


def blocked_lanes(handler: HandlerState, state: WorkerState, now: Now) -> BlockedLanes:
    """A handler's blocked lanes, described those that have been blocked for longest."""
    found = [(lane, head) for lane in handler.lanes.blocked() if (head := newest(lane))]
    if not found:
        return BlockedLanes()
    since_ms = {head: _since_ms(head, now) for _, head in found}
    oldest = nsmallest(MOST_SHOWN, found, key=lambda each: since_ms[each[1]])
    return BlockedLanes(
        count=len(found),
        behind=sum(behind(lane, head) for lane, head in found),
        since_ms=min(since_ms.values()),
        oldest=tuple(_describe(lane, head, state, now) for lane, head in oldest),
    )


def _describe(lane: Lane, head: TrackedDelivery, state: WorkerState, now: Now) -> BlockedLane:
    doing, by_key = doing_of(lane, head), head.assignment.handler.rules.ordering == "key"
    due_s = head.assignment.waiting.due_s(head) if doing in {Head.WAITING, Head.WITHHELD} else None
    return BlockedLane(
        topic=head.topic,
        partition=head.partition,
        offset=head.record_offset,
        key=state.shown_key(head.key) if by_key else None,
        head=doing,
        attempt=_attempt(head, doing),
        error=state.shown(last_outcome(head).failure),
        since_ms=_since_ms(head, now),
        next_try_ms=None if due_s is None else now.wall_ms + round((due_s - now.mono_s) * 1000),
        behind=behind(lane, head),
    )


def newest(lane: Lane) -> TrackedDelivery | None:
    """The newest delivery of the record that blocks a lane; None where it has just been settled."""
    head = lane.head
    if head is None:
        return None
    return head.assignment.tracker.open.get(head.record_offset)


def behind(lane: Lane, head: TrackedDelivery) -> int:
    """How many records wait behind the head of a blocked lane."""
    held = 0 if lane.held is None else lane.held[0]
    # A head that is being written elsewhere is not in its lane any more.
    return held - (doing_of(lane, head) is not Head.DEAD_LETTERING)


def doing_of(lane: Lane, head: TrackedDelivery) -> Head:
    """What the head of a blocked lane is doing."""
    if lane.holder is None:
        return Head.RUNNING if head.started_s and not head.closed else Head.QUEUED
    if not lane or lane[0] is not head:
        return Head.DEAD_LETTERING
    return Head.WITHHELD if head.record_offset in head.assignment.withheld else Head.WAITING


def last_outcome(head: TrackedDelivery) -> Failed | Rejected:
    """How the last delivery of a head ended."""
    trials = head.assignment.withheld.trials.get(head.record_offset)
    if trials is not None:
        return trials.outcome
    if isinstance(head.outcome, Failed | Rejected):
        return head.outcome
    before = head.envelope
    if before is None or before.error_type is None:
        return Failed(Failure(CONSUME_TIMEOUT, ""), Reason.TIMEOUT)
    failure = Failure(
        before.error_type,
        before.error_message or "",
        before.error_stack or "",
        before.error_fingerprint or "",
    )
    return Failed(failure, before.reason or Reason.ERROR)


def _attempt(head: TrackedDelivery, doing: Head) -> int:
    """Which delivery of its record was the last to fail."""
    again = doing is Head.DEAD_LETTERING or head.record_offset in head.assignment.withheld.trials
    return head.attempt if again else head.attempt - 1


def _since_ms(head: TrackedDelivery, now: Now) -> int:
    """When a head failed for the first time, milliseconds since the epoch."""
    trials = head.assignment.withheld.trials.get(head.record_offset)
    if trials is not None:
        return now.wall_ms - round((now.mono_s - trials.since_s) * 1000)
    envelope = head.envelope
    if envelope is not None and envelope.first_failed_at_ms is not None:
        return envelope.first_failed_at_ms
    return now.wall_ms - round((now.mono_s - (head.finished_s or now.mono_s)) * 1000)
