"""Breaker: a run of failures in the order of starts opens it, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.breaker.breaker_settings import MOST_FAILURES, CircuitBreaker
from ackfloor.core.breaker.rule import (
    FIRSTS_MISSED_S,
    PACE,
    PATIENCE_S,
    QUICK_S,
    Breaker,
    BreakerState,
)
from ackfloor.core.records.record import Origin

RULES = CircuitBreaker(5, 3, "60s", gives_in_after="10m")
#: Moments in milliseconds, and so that adding them loses nothing.
_MOMENTS = st.integers(0, 9_000).map(lambda ms: ms / 1024)
#: A moment; everything here is told relative to it.
T = 1_000.0


def origin(number: int) -> Origin:
    """A record's name."""
    return Origin("orders", 0, number)


def failing(starts: Iterable[float], first: bool = True) -> Breaker:
    """A breaker that has seen a success, and then failures of so many records."""
    breaker = Breaker()
    breaker.succeeded(T - 1.0, 0.01, True, T)
    for number, started_s in enumerate(starts):
        breaker.failed(origin(number), T + started_s, first, T + started_s + 0.01)
    return breaker


def opens(breaker: Breaker, running: Iterable[float] = (), now: float = 10.0) -> bool:
    """Whether it is convinced, with handlers that started then and still run."""
    return breaker.should_open([T + at_s for at_s in running], RULES, T + now)


def test_so_many_in_a_row() -> None:
    """Five records, not four."""
    assert not opens(failing(range(4)))
    assert opens(failing(range(5)))


def test_one_that_opens_before_it_has_seen_anything_gives_in_as_well() -> None:
    """K6: in a worker that takes the place of another one, or by an operator's word."""
    breaker = Breaker()
    breaker.open(T)
    assert not breaker.gives_in(RULES, T + 599.0)
    assert breaker.gives_in(RULES, T + 600.0)


def test_a_run_that_nothing_ends_takes_no_memory_without_end() -> None:
    """An operator may keep it closed for days, with nothing that succeeds."""
    breaker = failing([0.0] * MOST_FAILURES)
    breaker.failed(origin(MOST_FAILURES), T, True, T)
    assert breaker.run_length() == MOST_FAILURES


def test_one_record_is_one_however_often_it_fails() -> None:
    """K1: its redeliveries say little new."""
    breaker = failing(())
    for at_s in range(50):
        breaker.failed(origin(1), T + at_s, True, T + at_s)
    assert breaker.run_length() == 1
    assert not opens(breaker, now=50.0)


def test_a_success_counts_for_the_moment_it_started() -> None:
    """K2: it wipes out what started before it, and nothing that started later."""
    breaker = failing(range(6))
    breaker.succeeded(T + 2.5, 7.0, True, T + 9.5)
    assert breaker.run_length() == 3
    breaker.failed(origin(9), T + 2.0, True, T + 9.6)
    assert breaker.run_length() == 3, "it started before a success"


def test_timeouts_that_end_together_are_no_run() -> None:
    """Five of a hundred hang and end at once, long after others that started later succeeded."""
    breaker = Breaker()
    for number in range(95):
        breaker.succeeded(T + 0.01 * number, 0.01, True, T + 0.01 * number + 0.01)
    for number in range(5):
        breaker.failed(origin(number), T + 0.1 * number, True, T + 1.0)
    assert breaker.run_length() == 0


def test_a_start_that_still_runs_holds_the_judgement_back() -> None:
    """It may yet succeed: until it has run for longer than successes usually do."""
    breaker = failing(range(5))
    breaker.succeeded(T - 9.0, 8.0, True, T + 4.5)
    assert not opens(breaker, [0.5], 4.6)
    assert opens(breaker, [-20.0], 4.6), "that one is late"
    assert opens(breaker, [0.5], 13.0)


def test_slow_successes_beside_quick_failures() -> None:
    """Four of five fail within 1 ms, the others succeed after 1 s: it never opens."""
    breaker, pending = Breaker(), []
    breaker.succeeded(T - 2.0, 1.0, True, T - 1.0)
    for step in range(5_000):
        now_s = T + step * 0.01
        while pending and pending[0] + 1.0 <= now_s:
            started_s = pending.pop(0)
            breaker.succeeded(started_s, 1.0, True, now_s)
        if step % 5:
            breaker.failed(origin(step), now_s, True, now_s + 0.001)
        else:
            pending.append(now_s)
        assert not breaker.should_open(pending, RULES, now_s)


def test_fewer_are_enough_after_a_long_quiet() -> None:
    """Three, once nothing has succeeded for a minute; a new worker has seen nothing yet."""
    breaker = failing([1.0, 2.0, 61.0])
    assert not opens(breaker, now=59.0)
    assert opens(breaker, now=61.0)
    new = Breaker()
    for number in range(3):
        new.failed(origin(number), T + number, True, T + number)
    assert not opens(new, now=59.0)
    assert opens(new, now=61.0)


def test_redeliveries_count_while_there_is_nothing_else() -> None:
    """Not until no first delivery has ended for a minute; the next one ends that."""
    breaker = failing(range(6), first=False)
    assert breaker.run_length() == 0
    for number in range(6):
        at_s = T + FIRSTS_MISSED_S + number
        breaker.failed(origin(number), at_s, False, at_s)
    assert opens(breaker, now=99.0)
    breaker.failed(origin(77), T + 80.0, True, T + 80.0)
    assert breaker.run_length() == 1


def test_it_gives_in_where_nothing_but_redeliveries_comes() -> None:
    """And these don't open it again, until something else was seen."""
    breaker = failing(range(5))
    breaker.open(T + 5.0)
    assert not breaker.gives_in(RULES, T + 604.0)
    assert breaker.gives_in(RULES, T + 606.0)
    breaker.give_in()
    assert breaker.state is BreakerState.CLOSED
    for number in range(9):
        breaker.failed(origin(number), T + 700.0 + number, False, T + 700.0 + number)
    assert breaker.run_length() == 0
    breaker.succeeded(T + 720.0, 0.01, True, T + 720.0)
    for number in range(9):
        at_s = T + 800.0 + number
        breaker.failed(origin(number), at_s, False, at_s)
    assert breaker.run_length() == 9


def test_one_trial_at_a_time_at_a_bounded_pace() -> None:
    """K3: the next one when it is answered, and no sooner than the pace admits."""
    breaker = failing(range(5))
    breaker.open(T)
    assert (breaker.state, breaker.room(T)) == (BreakerState.OPEN, 1)
    breaker.tried(1, T)
    assert breaker.room(T + 0.5) == 0
    assert breaker.next_room_s(T + 0.5) == T + PATIENCE_S
    breaker.trial_ended(T, T + 0.001)
    assert breaker.room(T + 0.001) == 0
    assert breaker.next_room_s(T + 0.001) == T + 1 / PACE
    assert breaker.room(T + 1 / PACE) == 1


def test_quick_trials_keep_the_pace_whoever_looks_seldom() -> None:
    """A look each 20 ms lets four of them start; a slow one ends that."""
    breaker = failing(())
    breaker.open(T)
    started = 0
    for step in range(100):
        at_s = T + 0.02 * step
        count = breaker.room(at_s)
        breaker.tried(count, at_s)
        started += count
        for _ in range(count):
            breaker.trial_ended(at_s, at_s + 0.001)
    assert PACE * 2 - 8 <= started <= PACE * 2
    at_s = T + 2.0
    breaker.tried(1, at_s)
    breaker.trial_ended(at_s, at_s + 2 * QUICK_S)
    assert breaker.room(at_s + 0.1) == 1


def test_slow_start_leaves_no_debt() -> None:
    """However many it has let through, the next single trial comes by the pace."""
    breaker = failing(())
    breaker.open(T)
    breaker.trial_succeeded(64)
    for _ in range(50):
        breaker.tried(2, T)
    breaker.start_over()
    assert breaker.next_room_s(T + PATIENCE_S) <= T + PATIENCE_S


def test_a_trial_that_hangs_holds_up_no_other() -> None:
    """After a second; its own end is not taken for that of the next."""
    breaker = failing(())
    breaker.open(T)
    breaker.tried(1, T)
    assert breaker.room(T + PATIENCE_S) == 1
    breaker.tried(1, T + PATIENCE_S)
    breaker.trial_ended(T, T + PATIENCE_S + 0.1)
    assert breaker.room(T + PATIENCE_S + 0.1) == 0


def test_each_success_doubles_what_may_run() -> None:
    """Up to the concurrency; a long run of failures begins again with one."""
    breaker = failing(())
    breaker.open(T)
    assert [breaker.trial_succeeded(8) for _ in range(2)] == [False, False]
    assert (breaker.state, breaker.room(T)) == (BreakerState.SLOW_START, 4)
    breaker.start_over()
    assert breaker.state is BreakerState.OPEN
    assert [breaker.trial_succeeded(8) for _ in range(3)] == [False, False, True]


def test_what_started_before_it_opened_is_no_trial() -> None:
    """It says how things were."""
    breaker = failing(())
    assert not breaker.is_trial(inf)
    breaker.open(T)
    assert not breaker.is_trial(T - 0.1)
    assert breaker.is_trial(T)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), _MOMENTS, _MOMENTS)))
def test_it_counts_what_a_look_at_everything_counts(
    deliveries: list[tuple[int, bool, float, float]],
) -> None:
    """Told in the order of ends, it knows what sorting all by their starts shows."""
    breaker = Breaker()
    told = sorted(deliveries, key=lambda d: d[2] + d[3])
    for number, good, started_s, took_s in told:
        ended_s = T + started_s + took_s
        if good:
            breaker.succeeded(T + started_s, took_s, True, ended_s)
        else:
            breaker.failed(origin(number), T + started_s, True, ended_s)
    last_good_s = max((started_s for _, good, started_s, _ in told if good), default=-1.0)
    bad = {number for number, good, started_s, _ in told if not good and started_s > last_good_s}
    assert breaker.run_length() == len(bad)


@pytest.mark.parametrize("count", range(1, 3))
def test_k1_holds_at_any_time(count: int) -> None:
    """Fewer than the least number never open it."""
    assert not opens(failing(range(count)), now=10_000.0)


def test_an_outage_is_not_remembered_record_by_record() -> None:
    """While it is open nothing more can be concluded from failures."""
    breaker = failing(range(5))
    breaker.open(T + 5.0)
    for number in range(1_000):
        breaker.failed(origin(number), T + 6.0 + number, True, T + 6.0 + number)
    assert breaker.run_length() == 0
    breaker.trial_succeeded(64)
    breaker.failed(origin(1), T + 2_000.0, True, T + 2_000.0)
    assert breaker.run_length() == 1


def test_a_delivery_that_says_nothing_takes_no_trial_away_where_there_is_none() -> None:
    """It had started before it opened, and asked for a pause."""
    breaker = failing(range(5))
    breaker.open(T + 5.0)
    breaker.trial_left()
    assert breaker.room(T + 5.0) == 1
