"""Guard: what trips it, what it forgets, and which rounds of probes reset it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.errors import SettingError
from ackfloor.core.guard import MOST_WINDOW, PROBATION, ROUNDS, FloodGuard, Guard, Window
from ackfloor.core.model import Origin

RULES = FloodGuard()


def origin(number: int) -> Origin:
    """One of many records."""
    return Origin("orders", 0, number)


def test_the_defaults() -> None:
    """Half of the last hundred records, twenty at least, within a minute; 1 s to 5 s."""
    assert (RULES.limit, RULES.window, RULES.min_sample, RULES.enabled) == (0.5, 100, 20, True)
    assert (RULES.forget_after_s, RULES.probe_delay_s, RULES.max_probe_delay_s) == (60, 1, 5)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("guard.limit", lambda: FloodGuard(limit=0)),
        ("guard.limit", lambda: FloodGuard(limit=1.01)),
        ("guard.limit", lambda: FloodGuard(limit=float("nan"))),
        ("guard.limit", lambda: FloodGuard(limit=True)),
        ("guard.limit", lambda: FloodGuard(limit="half")),
        ("guard.window", lambda: FloodGuard(window=0)),
        ("guard.window", lambda: FloodGuard(window=MOST_WINDOW + 1)),
        ("guard.window", lambda: FloodGuard(window=1.5)),
        ("guard.min_sample", lambda: FloodGuard(min_sample=0)),
        ("guard.min_sample", lambda: FloodGuard(min_sample=True)),
        ("guard.min_sample", lambda: FloodGuard(min_sample=101)),
        ("guard.enabled", lambda: FloodGuard(enabled=None)),
        ("guard.forget_after", lambda: FloodGuard(forget_after="0s")),
        ("guard.forget_after", lambda: FloodGuard(forget_after="60")),
        ("guard.probe_delay", lambda: FloodGuard(probe_delay=1)),
        ("guard.max_probe_delay", lambda: FloodGuard(max_probe_delay="0s")),
        ("guard.max_probe_delay", lambda: FloodGuard(probe_delay="2s", max_probe_delay="1s")),
    ],
)
def test_what_can_not_be_meant_is_refused(field: str, make: Callable[[], Any]) -> None:
    """By its name, with what to write instead."""
    with pytest.raises(SettingError) as refused:
        make()
    assert refused.value.field == field
    assert refused.value.fix


def failures(guard: Guard, numbers: range, *, first: bool = True, at_s: float = 0.0) -> list[bool]:
    """Each record fails once; whether that tripped the guard."""
    return [guard.failed(origin(number), first, at_s, RULES) for number in numbers]


def test_nothing_is_concluded_from_a_small_sample() -> None:
    """Nineteen records may fail; the twentieth is one too many."""
    assert failures(Guard(), range(20)) == [False] * 19 + [True]


def test_one_bad_record_counts_once() -> None:
    """However often it fails, whether it is new or comes from a retry topic."""
    guard = Guard()
    for attempt in range(500):
        assert not guard.failed(origin(1), attempt == 0, attempt * 0.01, RULES)
        assert not guard.failed(origin(2), False, attempt * 0.01, RULES)
    assert guard.counts(5.0, RULES) == (0, 0)


def test_a_few_bad_ones_among_others_do_not_trip_it() -> None:
    """Three bad records, failing seven times each, and seventeen good ones."""
    guard = Guard()
    guard.handled(17, 0.0, RULES)
    for attempt in range(7):
        assert failures(guard, range(3), first=attempt == 0, at_s=attempt) == [False] * 3
    assert guard.counts(7.0, RULES) == (3, 20)


def test_the_share_decides() -> None:
    """Of a hundred records in the window the fiftieth failure is one too many."""
    guard = Guard()
    guard.handled(5_000, 0.0, RULES)
    assert failures(guard, range(50)) == [False] * 49 + [True]
    assert guard.counts(0.0, RULES) == (50, 100)


def test_what_comes_in_one_moment_is_counted_in_its_order() -> None:
    """Every fifth of two thousand answers that came together is a failure: that is no outage."""
    guard = Guard()
    for number in range(400):
        guard.handled(4, 0.0, RULES)
        assert not guard.failed(origin(number), True, 0.0, RULES)
    assert guard.counts(0.0, RULES) == (20, 100)


def test_a_quiet_topic_forgets() -> None:
    """One bad record every four seconds never makes twenty a minute."""
    guard = Guard()
    assert not any(guard.failed(origin(n), True, n * 4.0, RULES) for n in range(500))


def test_first_deliveries_decide_where_there_are_enough() -> None:
    """Redeliveries of bad records say nothing new while most new records are handled."""
    guard = Guard()
    guard.handled(18, 0.0, RULES)
    failures(guard, range(2))
    assert not any(failures(guard, range(100, 300), first=False))


def test_redeliveries_count_where_nothing_else_is_known() -> None:
    """A backlog of retries against a dependency that is down trips it as well."""
    assert failures(Guard(), range(20), first=False) == [False] * 19 + [True]


def test_right_after_a_reset_it_takes_less() -> None:
    """An outage that is not over shows again after a handful; a minute later it takes twenty."""
    guard = Guard()
    guard.trip(0.0, RULES)
    guard.reset(10.0, RULES)
    assert failures(guard, range(PROBATION), at_s=10.0) == [False] * (PROBATION - 1) + [True]
    guard.reset(20.0, RULES)
    assert not any(failures(guard, range(19), first=False, at_s=20.0))
    guard.reset(20.0, RULES)
    assert not any(failures(guard, range(19), at_s=80.0))


def probing(size: int = 0) -> Guard:
    """A guard that has tripped, in the round of that number."""
    guard = Guard()
    guard.trip(0.0, RULES)
    guard.probing_since_s = 1.0
    for number in range(size):
        for _ in range(ROUNDS[number]):
            guard.probe_handled(1.0)
    return guard


def test_probes_go_out_less_and_less_often() -> None:
    """1 s after it tripped, then 2 s, 4 s, and 5 s from then on."""
    guard = probing()
    assert (guard.tripped, guard.since_s, guard.delay_s) == (True, 0.0, 1.0)
    assert [guard.next_delay_s(RULES) for _ in range(4)] == [2.0, 4.0, 5.0, 5.0]


def test_three_rounds_of_successes_reset_it() -> None:
    """One, four, sixteen."""
    guard = probing()
    ended = []
    for size in ROUNDS:
        assert (guard.done, guard.round_size) == (False, size)
        ended.extend(guard.probe_handled(1.0) for _ in range(size))
    assert [number for number, over in enumerate(ended) if over] == [0, 4, 20]
    assert guard.done
    guard.reset(2.0, RULES)
    assert not guard.tripped


def test_a_round_in_which_too_many_fail_begins_again() -> None:
    """Two of four are half."""
    guard = probing(1)
    assert not guard.probe_failed(origin(1), 1.0, 1.0, RULES)
    assert guard.succeeding
    assert not guard.probe_failed(origin(2), 1.0, 1.0, RULES)
    assert not guard.succeeding
    assert guard.round_size == 1


def test_a_bad_record_does_not_fail_a_round_of_good_ones() -> None:
    """One of four, whichever ends last."""
    guard = probing(1)
    assert not guard.probe_failed(origin(1), 1.0, 1.0, RULES)
    assert [guard.probe_handled(1.0) for _ in range(3)] == [False, False, True]
    guard = probing(1)
    assert [guard.probe_handled(1.0) for _ in range(3)] == [False, False, False]
    assert guard.probe_failed(origin(1), 1.0, 1.0, RULES)


def test_what_hung_since_before_the_round_says_nothing_about_it() -> None:
    """Its failure comes from the outage; it counts for its record alone."""
    guard = probing(1)
    for _ in range(10):
        assert not guard.probe_failed(origin(1), 0.5, 30.0, RULES)
    assert guard.succeeding
    assert guard.probes_of(origin(1)) == 10
    guard.trip(40.0, RULES)
    assert (guard.probes_of(origin(1)), guard.probing_since_s) == (0, inf)


def test_a_round_is_no_larger_than_what_there_is_to_try() -> None:
    """Where one record waits, one success is all there can be."""
    guard = probing(1)
    assert guard.let_through(1)
    assert guard.probe_handled(1.0)
    assert not guard.let_through(0)


def test_a_pause_begins_again() -> None:
    """The handler knows that its dependency is away."""
    guard = probing(2)
    guard.begin_again(2.0)
    assert not guard.succeeding


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["handled", "failing"]),
            st.integers(1, 8),
            st.just(0.0) | st.floats(0, 20, width=16),
        ),
        max_size=80,
    )
)
def test_a_window_holds_what_is_young_and_last(steps: list[tuple[str, int, float]]) -> None:
    """Against a list of everything: the newest `window` of the last `forget_after`."""
    rules = replace_window(10)
    window = Window()
    everything: list[tuple[float, int | None]] = []
    now_s = 0.0
    for kind, number, passed_s in steps:
        now_s += passed_s
        if kind == "handled":
            window.add_handled(number, now_s, rules)
            everything += [(now_s, None)] * number
        else:
            window.add_failing(origin(number), now_s, rules)
            everything = [entry for entry in everything if entry[1] != number]
            everything.append((now_s, number))
        everything = [e for e in everything if e[0] >= now_s - rules.forget_after_s]
        newest = everything[-rules.window :]
        assert window.sample() == len(newest) <= rules.window
        failing = [number for _, number in newest if number is not None]
        assert [origin.offset for origin in window.failing] == failing


def replace_window(window: int) -> FloodGuard:
    """The default with a smaller window."""
    return FloodGuard(window=window, min_sample=5)


def test_it_is_a_value() -> None:
    """Two that say the same are equal, and none can be changed."""
    assert FloodGuard() == FloodGuard(limit=0.5)
    assert hash(FloodGuard()) == hash(FloodGuard())
    with pytest.raises(AttributeError):
        RULES.limit = 0.1  # type: ignore[misc]
