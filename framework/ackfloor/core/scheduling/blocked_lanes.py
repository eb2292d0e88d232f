"""Blocked lanes: ordered lanes whose head failed, and what each of them waits for.

Theory. A lane is blocked from when its head fails until that record is settled, or has left for a
retry topic. Its head waits for its next delivery, because of its backoff (`retry_in_place`) or
because the circuit breaker withholds it (`withheld`); or it is being delivered; or it is being
written to the dead-letter topic. An error or an attempt is not stored for this: the head has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice

from ackfloor.core.messages.events import RecordDiscarded
from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import CONSUME_TIMEOUT, Failed, Rejected
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import Assignment, HandlerState
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
    MOVING = "moving"
    HELD = "held"


def blocked_lanes(handler: HandlerState, state: WorkerState, now: Now) -> BlockedLanes:
    """A handler's blocked lanes, described those that have been blocked for longest.

    There may be a hundred thousand, and a snapshot is made twice a second: only those that are
    described are looked at, the rest is in counts that are kept.
    """
    lanes = handler.lanes
    if not lanes.blocked:
        return BlockedLanes()
    found = ((lane, head) for lane in lanes.blocked.values() if (head := newest(lane)))
    shown = list(islice(found, MOST_SHOWN))
    if not shown:
        return BlockedLanes()
    due_s = _due_s([head for _, head in shown])
    oldest = [_describe(lane, head, due_s.get(head), state, now) for lane, head in shown]
    oldest.sort(key=lambda each: each.since_ms)
    count = len(lanes.blocked)
    held = sum(each.held for each in state.assignments.values() if each.handler is handler)
    # What an assignment holds, the heads that are still in their lanes are part of.
    behind = held - (count - lanes.leaving) - lanes.pending
    return BlockedLanes(count, behind, oldest[0].since_ms, tuple(oldest))


def _due_s(heads: Iterable[TrackedDelivery]) -> dict[TrackedDelivery, float]:
    """When those of these that wait are due."""
    of_each: dict[Assignment, dict[int, TrackedDelivery]] = {}
    for head in heads:
        of_each.setdefault(head.assignment, {})[head.record_offset] = head
    return {
        mine[offset]: due_s
        for assignment, mine in of_each.items()
        for offset, due_s in assignment.waiting.times(mine).items()
    }


def _describe(
    lane: Lane, head: TrackedDelivery, due_s: float | None, state: WorkerState, now: Now
) -> BlockedLane:
    doing, by_key = doing_of(lane, head), head.assignment.handler.rules.ordering == "key"
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
        behind=behind(lane),
        at_least=_may_be_older(head),
    )


def newest(lane: Lane) -> TrackedDelivery | None:
    """The newest delivery of the record that blocks a lane; None where it has just been settled."""
    head = lane.head
    if head is None:
        return None
    return head.assignment.tracker.open.get(head.record_offset)


def behind(lane: Lane) -> int:
    """How many records wait behind the head of a blocked lane."""
    held = 0 if lane.held is None else lane.held[0]
    return held if lane.leaving else held - 1


def doing_of(lane: Lane, head: TrackedDelivery) -> Head:
    """What the head of a blocked lane is doing."""
    if lane.leaving:
        return Head.DEAD_LETTERING
    if lane.holder is None:
        return Head.RUNNING if head.started_s and not head.closed else Head.QUEUED
    return Head.WITHHELD if head.record_offset in head.assignment.withheld else Head.WAITING


def last_outcome(head: TrackedDelivery) -> Failed | Rejected:
    """How the last delivery of a head ended."""
    outcome = head.assignment.withheld.last_outcome(head.record_offset)
    if outcome is not None:
        return outcome
    if isinstance(head.outcome, Failed | Rejected):
        return head.outcome
    before = head.envelope
    if before is None or before.error_type is None:
        return Failed(Failure(CONSUME_TIMEOUT, ""), Reason.TIMEOUT)
    return Failed(before.failure, before.reason or Reason.ERROR)


def _attempt(head: TrackedDelivery, doing: Head) -> int:
    """Which delivery of its record was the last to fail."""
    withheld = head.assignment.withheld.last_outcome(head.record_offset) is not None
    return head.attempt if withheld or doing is Head.DEAD_LETTERING else head.attempt - 1


def _since_ms(head: TrackedDelivery, now: Now) -> int:
    """When a head failed for the first time, milliseconds since the epoch."""
    trials = head.assignment.withheld.trials.get(head.record_offset)
    if trials is not None:
        return now.wall_ms - round((now.mono_s - trials.since_s) * 1000)
    envelope = head.envelope
    if envelope is not None and envelope.first_failed_at_ms is not None:
        return envelope.first_failed_at_ms
    return now.wall_ms - round((now.mono_s - (head.finished_s or now.mono_s)) * 1000)


def _may_be_older(head: TrackedDelivery) -> bool:
    """Whether a head may have failed before, with an earlier owner of its partition.

    What is tried again in place leaves no trace in Kafka; a record of a retry topic says when it
    failed.
    """
    assignment = head.assignment
    return assignment.tier_s is None and head.record_offset < assignment.inherited_until


def discarded(head: TrackedDelivery, reason: str) -> RecordDiscarded:
    """An operator has a head discarded, and says why."""
    assignment = head.assignment
    return RecordDiscarded(
        assignment.source_topic,
        assignment.partition,
        head.record_offset,
        assignment.handler.rules.name,
        reason,
        assignment.topic,
        by_operator=True,
        origin=head.origin,
    )
