"""From the engine's state to an immutable snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from ackfloor.core.queues.flow_limits import WAITING_PART, FlowControl
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.blocked_lanes import blocked_lanes
from ackfloor.core.scheduling.quarantine_orders import quarantined_lanes
from ackfloor.core.state.assignment import Assignment, HandlerRules, HandlerState
from ackfloor.core.state.faults import MOST
from ackfloor.core.state.noisy_keys import long_slots, noisy_keys
from ackfloor.core.state.snapshot import (
    BreakerSnapshot,
    HandlerSnapshot,
    PartitionSnapshot,
    RateSnapshot,
    RunningDelivery,
    Snapshot,
)
from ackfloor.core.state.worker_state import WorkerState
from ackfloor.declare.fair_key import kafka_key
from ackfloor.ports import Executor, Source
from ackfloor.runtime.reporting.turn_times import TurnTimes

#: How many of a handler's longest-running deliveries a snapshot names.
OLDEST = 20
#: Of how many of them it tells where their handlers are, once they have run for so many seconds.
STACKS = 5
STACK_AFTER_S = 1.0


def build_snapshot(
    state: WorkerState,
    executors: Mapping[str, Executor],
    source: Source | None,
    times: TurnTimes,
    now: Now,
    *,
    group: str,
    status: str,
) -> Snapshot:
    """What the worker looks like right now; called on the owner thread.

    Args:
        source: None before it has joined the group.
    """
    high_watermarks = source.high_watermarks() if source else {}
    faults = state.faults.all()
    # The worker's own have no cause and are few, and liveness looks at them.
    shown = tuple(f for place, f in enumerate(faults) if place < MOST or not f.cause)
    return Snapshot(
        group=group,
        state=status,
        taken_ms=now.wall_ms,
        open_count=state.flow.open_count,
        open_bytes=state.flow.open_bytes,
        max_open=state.flow.limits.max_open,
        max_open_bytes=state.flow.limits.max_open_bytes,
        partitions=tuple(
            _partition(assignment, state.flow, high_watermarks.get(key), now)
            for key, assignment in state.assignments.items()
        ),
        handlers=tuple(
            _handler(handler, executors[name], state, now)
            for name, handler in state.handlers.items()
        ),
        faults=shown,
        polled_s=times.polled_s,
        worked_s=times.worked_s,
        poll_limit_s=source.poll_limit_s() if source else None,
        more_faults=len(faults) - len(shown),
    )


def _partition(
    a: Assignment, flow: FlowControl, high_watermark: int | None, now: Now
) -> PartitionSnapshot:
    tracker = a.tracker
    oldest = tracker.oldest()
    return PartitionSnapshot(
        topic=a.topic,
        partition=a.partition,
        epoch=a.epoch,
        handler=a.handler.rules.name,
        source_topic=a.source_topic,
        tier_s=a.tier_s,
        floor=a.floor(now.wall_ms),
        committed=a.commit.position,
        position=tracker.position,
        highest_settled=tracker.highest_settled,
        high_watermark=high_watermark,
        open_count=len(tracker.open),
        gap_count=tracker.gap_count(),
        waiting=len(a.waiting),
        next_due_ms=_next_due_ms(a, now),
        parking=a.parking + a.refused,
        blocked=a.held,
        paused=a.paused,
        floor_advanced_ms=a.floor_advanced_ms,
        oldest_open_ms=(
            None if oldest is None else round(now.wall_ms - (now.mono_s - oldest.received_s) * 1000)
        ),
        oldest_written_ms=oldest.timestamp if oldest is not None and oldest.timestamp > 0 else None,
        pause_reason=flow.why_paused(a),
    )


def _next_due_ms(a: Assignment, now: Now) -> int | None:
    if not a.waiting:
        return None
    return now.wall_ms + round((a.waiting.next_s - now.mono_s) * 1000)


def _handler(
    handler: HandlerState, executor: Executor, state: WorkerState, now: Now
) -> HandlerSnapshot:
    rules = handler.rules
    running = [delivery for delivery in executor.running() if delivery.started_s]
    running.sort(key=lambda delivery: delivery.started_s)
    return HandlerSnapshot(
        name=rules.name,
        ordering=rules.ordering,
        concurrency=rules.concurrency,
        consume_timeout_s=rules.consume_timeout_s,
        running=len(running),
        queued=len(handler.queue) + executor.queued(),
        abandoned=executor.abandoned(),
        held_for_s=_left_s(handler.asked_until_s, now) or 0.0,
        held_reason=handler.held_reason if handler.asked_until_s else "",
        oldest=tuple(
            _running(d, n, handler, executor, now) for n, d in enumerate(running[:OLDEST])
        ),
        tripped=handler.circuit.breaker.is_open,
        breaker=_breaker(handler, state, now),
        on_failure=_on_failure(rules),
        after_dead_letter=rules.after_dead_letter if rules.quarantines else "",
        delays_s=rules.policy.tiers(),
        max_redeliveries=rules.policy.max_redeliveries,
        lane_waiting=handler.lanes.records(),
        blocked=blocked_lanes(handler, state, now),
        quarantined=quarantined_lanes(handler, state, now),
        paused=handler.paused_until_s > 0,
        paused_for_s=_left_s(handler.paused_until_s, now),
        paused_reason=handler.paused_reason,
        fairness=_fairness(rules),
        noisy_keys=noisy_keys(handler, state, running),
        long_slots=long_slots(handler, running, now),
        rate=_rate(handler, state),
    )


def _rate(handler: HandlerState, state: WorkerState) -> RateSnapshot:
    rate = handler.rate
    if rate is None:
        return RateSnapshot()
    return RateSnapshot(
        handler.rules.rate_per_s,
        state.rate_of(handler),
        len(handler.queue) if rate.lacking else 0,
        rate.lacking_s,
    )


def _fairness(rules: HandlerRules) -> str:
    """What records are grouped by, in a word."""
    if rules.fair_key is None:
        return "off"
    return "key" if rules.fair_key is kafka_key else "function"


def _on_failure(rules: HandlerRules) -> str:
    """What the handler's author wrote, or would have."""
    if rules.quarantines:
        return "quarantine"
    return "block" if rules.in_place else "park"


def _left_s(until_s: float, now: Now) -> float | None:
    """How long a pause lasts yet; None where there is none, or it has no end."""
    return max(0.0, until_s - now.mono_s) if 0 < until_s < inf else None


def _breaker(handler: HandlerState, state: WorkerState, now: Now) -> BreakerSnapshot:
    circuit, breaker, rules = handler.circuit, handler.circuit.breaker, handler.rules
    snapshot = BreakerSnapshot(
        enabled=rules.breaker.enabled,
        failing=breaker.run_length(),
        error=breaker.error,
        allowed=rules.concurrency,
        withheld=state.withheld(handler),
        withheld_most=max(1, state.flow.limits.max_open // WAITING_PART),
        full=circuit.full,
    )
    if circuit.forced is not None:
        for_s = circuit.forced_until_s - now.mono_s
        snapshot = replace(
            snapshot,
            forced=circuit.forced,
            forced_reason=circuit.forced_reason,
            forced_for_s=for_s if for_s < inf else None,
        )
    if not breaker.is_open:
        return snapshot
    trial_s = circuit.next_trial_s - now.mono_s
    return replace(
        snapshot,
        state=breaker.state,
        since_ms=now.wall_ms - round((now.mono_s - breaker.since_s) * 1000),
        failing=circuit.failing,
        allowed=min(breaker.allowed, rules.concurrency),
        next_trial_s=max(0.0, trial_s) if trial_s < inf else None,
    )


def _running(
    delivery: TrackedDelivery, rank: int, handler: HandlerState, executor: Executor, now: Now
) -> RunningDelivery:
    running_s = now.mono_s - delivery.started_s
    due_s = delivery.deadline_s
    return RunningDelivery(
        delivery.topic,
        delivery.partition,
        delivery.offset,
        delivery.attempt,
        running_s,
        None if due_s is None else due_s - now.mono_s,
        executor.stack(delivery) if rank < STACKS and running_s >= STACK_AFTER_S else (),
        0 if handler.rules.ordering == "unordered" else handler.lanes.behind(delivery),
    )
