"""The verdict: what fails liveness, what fails readiness, and what fails neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.observe import Fault, RunningDelivery
from ackfloor_monitoring.serving.health import HealthRules, WorkerFacts, judge
from tests.monitoring.samples import NOW_MS, OPEN, SNAPSHOT, handler, partition, snapshot

WELL = WorkerFacts(SNAPSHOT, joined=True)
HOUR_MS = 3_600_000


def gone(seconds: int) -> WorkerFacts:
    """A worker whose process ended."""
    return WorkerFacts(gone_s=seconds)


def fault(kind: str) -> WorkerFacts:
    """A worker with one fault in force."""
    told = Fault(kind, "orders/0/7", "to orders--billing--retry-1s: away", NOW_MS - 1)
    return WorkerFacts(snapshot(faults=(told,)), joined=True)


def blocked(seconds: int, timeout_s: float | None) -> WorkerFacts:
    """A worker whose event loop has stood still for a while."""
    told = Fault("event_loop", "asyncio", "nothing has run on it", NOW_MS - seconds * 1_000)
    handlers = (handler(consume_timeout_s=1), handler(consume_timeout_s=timeout_s))
    return WorkerFacts(snapshot(faults=(told,), handlers=handlers), joined=True, blocked_s=seconds)


def state(name: str) -> WorkerFacts:
    """A worker in a state."""
    return WorkerFacts(snapshot(state=name), joined=True)


def idle(seconds: int) -> WorkerFacts:
    """A worker whose loop made its last turn a while ago."""
    return WorkerFacts(SNAPSHOT, joined=True, turn_age_s=seconds)


def test_a_worker_that_waits_for_a_dead_one_says_so() -> None:
    """A record that kills its worker is seen so long before it is dead-lettered."""
    waiting = WorkerFacts(snapshot(partitions=()))

    def told(facts: WorkerFacts) -> str:
        (reason,) = judge({0: facts}, NOW_MS, 1).reasons
        return reason.message

    assert told(waiting) == "has no assignment from the group"
    assert told(replace(waiting, ends=1, ended_s=17.4)) == (
        "has no assignment from the group; 1 process before it ended, the last one 17 s ago: the "
        "run's log says with which records"
    )
    assert "; 2 processes before it ended" in told(replace(waiting, ends=2, ended_s=3.0))


@pytest.mark.parametrize(
    ("facts", "live", "ready", "checks"),
    [
        (WELL, True, True, []),
        (None, True, False, ["workers"]),
        (WorkerFacts(), True, False, ["state"]),
        (WorkerFacts(waits="login refused"), True, False, ["kafka"]),
        (WorkerFacts(snapshot(partitions=())), True, False, ["assignment"]),
        (WorkerFacts(snapshot(partitions=()), joined=True), True, True, []),
        (WorkerFacts(SNAPSHOT, joined=False), True, True, []),
        (state("starting"), True, False, ["state"]),
        (state("draining"), True, False, ["state"]),
        (state("stopped"), True, False, ["state"]),
        (fault("parking"), True, False, ["faults.parking"]),
        (fault("commit"), True, False, ["faults.commit"]),
        (fault("topics"), True, False, ["faults.topics"]),
        (fault("abandoned"), True, False, ["faults.abandoned"]),
        (fault("kafka"), True, False, ["faults.kafka"]),
        (fault("leftover"), True, False, ["faults.leftover"]),
        (fault("breaker"), True, False, ["faults.breaker"]),
        (WorkerFacts(snapshot(more_faults=3)), True, False, ["faults"]),
        (blocked(179, timeout_s=60), True, False, ["faults.event_loop"]),
        (blocked(181, timeout_s=60), False, False, ["faults.event_loop"]),
        (blocked(1_000_000, timeout_s=None), True, False, ["faults.event_loop"]),
        (idle(119), True, True, []),
        (idle(121), False, False, ["loop"]),
        (gone(1), True, False, ["workers"]),
        (gone(119), True, False, ["workers"]),
        (gone(121), False, False, ["workers"]),
    ],
)
def test_a_worker_is_judged(
    facts: WorkerFacts | None, live: bool, ready: bool, checks: list[str]
) -> None:
    """Each state of one worker gives its verdict and names its checks."""
    health = judge({} if facts is None else {0: facts}, NOW_MS, 1)
    assert (health.live, health.ready) == (live, ready)
    assert [reason.check for reason in health.reasons] == checks


def test_a_stuck_record_fails_neither() -> None:
    """A floor that hasn't moved and a handler that has run for an hour are no reason to restart
    the process, nor to call it unready: parking cures them, a restart would deliver again."""
    stuck = snapshot(
        partitions=(
            partition(floor_advanced_ms=NOW_MS - HOUR_MS, oldest_open_ms=NOW_MS - HOUR_MS),
        ),
        handlers=(handler(oldest=(RunningDelivery("orders", 0, 100, 1, 3_600.0),)),),
    )
    health = judge({0: WorkerFacts(stuck, joined=True)}, NOW_MS, 1)
    assert health.live
    assert health.ready


def test_a_held_handler_says_what_is_away() -> None:
    """A pause is shown with the handler's own reason, and never fails liveness."""
    held = snapshot(handlers=(handler(held_for_s=4.2, held_reason="the bank is away"),))
    health = judge({0: WorkerFacts(held, joined=True)}, NOW_MS, 1)
    assert health.live
    assert [reason.message for reason in health.reasons] == [
        "handler bill is paused for another 4.2 s: the bank is away"
    ]


@pytest.mark.parametrize("forced", ["", "open"])
@pytest.mark.parametrize(
    ("next_s", "told"), [(0.84, "; the next trial is due in 0.8 s"), (None, "")]
)
def test_a_breaker_that_is_not_closed_is_unready_and_alive(
    forced: str, next_s: float | None, told: str
) -> None:
    """Once, by its fault, with the next trial of that very handler, where one is planned."""
    breaker = replace(OPEN, next_trial_s=next_s, forced=forced)
    calm = handler(name="ship", breaker=replace(breaker, next_trial_s=9.0))
    handlers = (calm, handler(tripped=True, breaker=breaker))
    why = Fault("breaker", "bill", "circuit breaker open for 1m30s", NOW_MS - 90_000)
    open_ = snapshot(handlers=handlers, faults=(why,))
    health = judge({0: WorkerFacts(open_, joined=True)}, NOW_MS, 1)
    assert health.live
    assert not health.ready
    assert [(reason.check, reason.message, reason.since_ms) for reason in health.reasons] == [
        ("faults.breaker", f"bill: circuit breaker open for 1m30s{told}", NOW_MS - 90_000)
    ]


def test_a_pause_is_told_beside_a_breaker_that_is_not_closed() -> None:
    """The handler's own pause is another reason, and keeps the trials back."""
    both = handler(held_for_s=4.2, held_reason="the bank is away", tripped=True, breaker=OPEN)
    why = Fault("breaker", "bill", "circuit breaker open for 1m30s", NOW_MS - 90_000)
    health = judge(
        {0: WorkerFacts(snapshot(handlers=(both,), faults=(why,)), joined=True)}, NOW_MS, 1
    )
    assert [reason.check for reason in health.reasons] == ["faults.breaker", "held"]


def test_every_worker_counts_and_is_named() -> None:
    """One missing worker makes the run unready, and the reason says which."""
    health = judge({0: WELL, 2: fault("parking")}, NOW_MS, 3)
    assert [(reason.worker, reason.check) for reason in health.reasons] == [
        (1, "workers"),
        (2, "faults.parking"),
    ]
    assert health.reasons[1].message == "orders/0/7: to orders--billing--retry-1s: away"
    assert health.reasons[1].since_ms == NOW_MS - 1


def test_a_broker_outage_is_unready_and_alive() -> None:
    """All that an outage causes at once leaves the run alive, however long it lasts."""
    since_ms = NOW_MS - HOUR_MS
    out = snapshot(
        partitions=(),
        faults=tuple(Fault(kind, "-", "broker away", since_ms) for kind in ("commit", "parking")),
    )
    health = judge({0: WorkerFacts(out, joined=False)}, NOW_MS, 1)
    assert health.live
    assert not health.ready


def test_limits_can_be_set() -> None:
    """A deployment with longer turns says so."""
    rules = HealthRules(turn_limit_s=600.0)
    assert judge({0: idle(300)}, NOW_MS, 1, rules).live
