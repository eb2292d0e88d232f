"""Health: whether the run is alive and whether it is ready, and why not.

Alive fails only for what a restart cures: a loop that makes no turns, an event loop that is blocked
for so long that the record that blocks it was parked, a worker process that ended and was not
replaced. A stuck record, a handler that hangs or a broker that is away never fail it: parking cures
the first two, and a restart would only deliver again.

Ready fails for everything an operator should know: workers missing, starting, draining or without
an assignment or a broker that authorizes them, faults that keep records open (such as an open
circuit breaker or a missing permission), handlers that asked for a pause.
An operator's pause of a handler is deliberate: it is a note, and the run stays ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from ackfloor.observe import Fault, Snapshot

#: The kind of the fault of a blocked event loop.
BLOCKED = "event_loop"
#: The kind of the fault of a circuit breaker that is not closed; its subject is the handler.
BREAKER = "breaker"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """How long is too long, in seconds.

    Attributes:
        turn_limit_s: a loop's longest turn: above the 100 s a revocation may drain for.
        restart_limit_s: from a worker's end to its successor's first report: above the
            supervisor's longest backoff.
    """

    turn_limit_s: float = 120.0
    restart_limit_s: float = 120.0


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What is known of one worker number.

    Attributes:
        snapshot: its newest one, None before the first.
        joined: the group has given it an assignment, maybe an empty one.
        gone_s: how long ago its process ended, None while one runs.
        ends: how many processes before it have ended.
        ended_s: how long ago the last of them did.
        waits: why it, or the run, can't start yet: no broker answers, or lets it in.
        turn_age_s: how long ago its loop made its last turn.
        blocked_s: for how long it has reported that its event loop is blocked. All ages are by a
            clock that does not jump.
    """

    snapshot: Snapshot | None = None
    joined: bool = False
    gone_s: float | None = None
    ends: int = 0
    ended_s: float = 0.0
    waits: str = ""
    turn_age_s: float = 0.0
    blocked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HealthReason:
    """One reason; `fails_live` marks those that a restart cures."""

    check: str
    worker: int
    message: str
    since_ms: int | None = None
    fails_live: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict. What isn't alive isn't ready."""

    live: bool
    ready: bool
    reasons: tuple[HealthReason, ...]


def judge(
    workers: Mapping[int, WorkerFacts],
    now_ms: int,
    expected_workers: int,
    rules: HealthRules = HealthRules(),
) -> Health:
    """The run's health at a moment."""
    reasons = tuple(
        reason
        for worker in range(expected_workers)
        for reason in _reasons(worker, workers.get(worker), now_ms, rules)
    )
    live = not any(reason.fails_live for reason in reasons)
    return Health(live, not reasons, reasons)


def _reasons(
    worker: int, facts: WorkerFacts | None, now_ms: int, rules: HealthRules
) -> Iterator[HealthReason]:
    if facts is None:
        yield HealthReason("workers", worker, "has not reported yet")
    elif facts.gone_s is not None:
        yield HealthReason(
            "workers",
            worker,
            f"its process ended {facts.gone_s:.0f} s ago and no new one has reported",
            _since_ms(now_ms, facts.gone_s),
            fails_live=facts.gone_s > rules.restart_limit_s,
        )
    elif facts.snapshot is None:
        yield _starting(worker, facts.waits)
    else:
        yield from _of_turns(worker, facts.turn_age_s, now_ms, rules)
        yield from _of_snapshot(worker, facts, facts.snapshot, rules)


def _starting(worker: int, waits: str) -> HealthReason:
    if waits:
        return HealthReason("kafka", worker, f"waits for Kafka: {waits}")
    return HealthReason("state", worker, "is starting")


def _of_turns(worker: int, age_s: float, now_ms: int, rules: HealthRules) -> Iterator[HealthReason]:
    if age_s > rules.turn_limit_s:
        yield HealthReason(
            "loop",
            worker,
            f"its loop has made no turn for {age_s:.0f} s (limit {rules.turn_limit_s:.0f} s)",
            _since_ms(now_ms, age_s),
            fails_live=True,
        )


def _since_ms(now_ms: int, age_s: float) -> int:
    return now_ms - round(age_s * 1000)


def _of_snapshot(
    worker: int, facts: WorkerFacts, snapshot: Snapshot, rules: HealthRules
) -> Iterator[HealthReason]:
    if snapshot.state != "running":
        yield HealthReason("state", worker, f"is {snapshot.state}")
    elif not facts.joined and not snapshot.partitions:
        text = f"has no assignment from the group{_before(facts)}"
        yield HealthReason("assignment", worker, text)
    for fault in snapshot.faults:
        message = f"{fault.subject}: {fault.message}{_next_trial(fault, snapshot)}"
        limit_s = _blocked_limit_s(snapshot, rules)
        cured = fault.kind == BLOCKED and facts.blocked_s > limit_s
        yield HealthReason(f"faults.{fault.kind}", worker, message, fault.since_ms, cured)
    if snapshot.more_faults:
        yield HealthReason("faults", worker, f"{snapshot.more_faults} more faults are not shown")
    for handler in snapshot.handlers:
        if handler.held_for_s > 0:
            why = handler.held_reason or "no reason given"
            text = f"handler {handler.name} is paused for another {handler.held_for_s:.1f} s: {why}"
            yield HealthReason("held", worker, text)


def _before(facts: WorkerFacts) -> str:
    """What became of the processes before this one: the group may wait for one that died."""
    if not facts.ends:
        return ""
    what = "process" if facts.ends == 1 else "processes"
    return (
        f"; {facts.ends} {what} before it ended, the last one {facts.ended_s:.0f} s ago: the "
        "run's log says with which records"
    )


def _next_trial(fault: Fault, snapshot: Snapshot) -> str:
    """When the next trial of a handler's open circuit breaker is due, where known."""
    if fault.kind != BREAKER:
        return ""
    found = (h.breaker.next_trial_s for h in snapshot.handlers if h.name == fault.subject)
    next_s = next(found, None)
    return "" if next_s is None else f"; the next trial is due in {next_s:.1f} s"


def _blocked_limit_s(snapshot: Snapshot, rules: HealthRules) -> float:
    """After which time whatever blocks the event loop has been parked, if it ever is."""
    timeouts_s = (handler.consume_timeout_s for handler in snapshot.handlers)
    return max((inf if one is None else one for one in timeouts_s), default=0) + rules.turn_limit_s
