"""RetryPolicy: its schedule and presets, what it refuses, what the preview warns about."""

from __future__ import annotations

import pickle
from datetime import timedelta
from itertools import islice, pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.retry_policy import MOST_REDELIVERIES, MOST_STEPS, RetryPolicy, warnings
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError


def test_the_default_policy_is_what_the_readers_were_promised() -> None:
    """1s, 5s, 25s, 2m5s, 10m, 10m: 5 tiers, 7 deliveries, 22m36s."""
    policy = RetryPolicy()

    assert policy.schedule() == (1, 5, 25, 125, 600, 600)
    assert policy.tiers() == (1, 5, 25, 125, 600)
    assert policy.total_s() == 1_356
    assert [policy.delay_s(n) for n in range(1, 8)] == [1, 5, 25, 125, 600, 600, None]
    assert policy.jitter == 0.15


def test_durations_are_timedeltas_or_texts_and_seconds_inside() -> None:
    """Both spellings make the same policy, which hashes, pickles and can't be changed."""
    written = RetryPolicy("1500ms", 2, "1m")
    typed = RetryPolicy(timedelta(milliseconds=1500), 2.0, timedelta(minutes=1))

    assert written == typed
    assert hash(written) == hash(typed)
    assert pickle.loads(pickle.dumps(written)) == written
    assert (written.initial_delay_s, written.max_delay_s) == (1.5, 60.0)
    with pytest.raises(AttributeError):
        written.jitter = 0.5  # type: ignore[misc]


def test_activemq_s_defaults_do_not_back_off() -> None:
    """Its multiplier of 5 is off by default: six times a second, then the dead-letter queue."""
    policy = RetryPolicy.activemq()

    assert policy.schedule() == (1,) * 6
    assert policy.tiers() == (1,)
    assert policy.jitter == 0


def test_rocketmq_s_sixteen_redeliveries_start_at_level_three() -> None:
    """10s 30s 1m..10m 20m 30m 1h 2h, of the 18 levels that begin at 1s and 5s."""
    minutes = [f"{n}m" for n in range(1, 11)]
    levels = ["1s", "5s", "10s", "30s", *minutes, "20m", "30m", "1h", "2h"]
    policy = RetryPolicy.rocketmq()

    assert policy.schedule() == tuple(parse_duration(level, field="f") for level in levels[2:])
    assert len(levels) == 18
    assert policy.max_redeliveries == len(policy.tiers()) == 16


def test_a_fixed_delay_repeats() -> None:
    """Its one tier serves every redelivery."""
    policy = RetryPolicy.fixed("30s", max_redeliveries=3)

    assert policy.schedule() == (30, 30, 30)
    assert policy.tiers() == (30,)
    assert RetryPolicy.fixed("30s", None).schedule() == (30,)


def test_an_explicit_schedule_goes_up_and_down_and_repeats_its_last_delay() -> None:
    """The delays as listed; the last one stands for those after it."""
    policy = RetryPolicy(max_redeliveries=5, delays=["10s", timedelta(seconds=1), "1m"])

    assert policy.schedule() == (10, 1, 60, 60, 60)
    assert policy.tiers() == (1, 10, 60)
    assert (policy.initial_delay_s, policy.max_delay_s) == (10, 60)
    assert RetryPolicy(max_redeliveries=2, delays=["1s", "2s", "3s"]).tiers() == (1, 2)
    assert RetryPolicy(max_redeliveries=None, delays=["1s", "1s", "5s"]).schedule() == (1, 1, 5)


def test_no_redelivery_has_no_schedule() -> None:
    """A budget of 0 needs no tiers, and its delay may be anything."""
    policy = RetryPolicy("0s", max_redeliveries=0)

    assert policy.schedule() == policy.tiers() == ()
    assert policy.total_s() == 0
    assert policy.delay_s(1) is None


def test_an_unlimited_schedule_ends_at_the_first_delay_that_repeats_for_ever() -> None:
    """The cap closes the list; the waits beyond it stay the cap, however many there are."""
    policy = RetryPolicy(max_redeliveries=None)

    assert policy.schedule() == (1, 5, 25, 125, 600)
    assert policy.total_s() == inf
    assert policy.delay_s(10**9) == 600
    assert RetryPolicy("1s", 5, "125s", None).schedule() == (1, 5, 25, 125)


def test_an_exponent_that_overflows_a_float_is_the_cap() -> None:
    """Delivery 2,000 of a record waits as long as any other late one."""
    assert RetryPolicy(multiplier=10, max_redeliveries=None).delay_s(2_000) == 600


def test_delays_that_are_equal_to_the_millisecond_and_grow_later_keep_their_tiers() -> None:
    """A slow start (1, 1, 1, 2 ms) does not end the schedule."""
    policy = RetryPolicy("1ms", 1.2, "10ms", None)

    assert policy.schedule()[:2] == (0.001, 0.001)
    assert policy.tiers()[-1] == 0.010


def test_delays_are_whole_milliseconds() -> None:
    """What names and headers can't carry is rounded at the start, not at the first failure."""
    policy = RetryPolicy("1.6ms", 1.7, "100.4ms", delays=())

    assert policy.initial_delay_s == 0.002
    assert policy.max_delay_s == 0.1
    assert RetryPolicy(delays=["1.6ms"]).tiers() == (0.002,)


def test_redeliveries_count_from_one() -> None:
    """The first delivery is none."""
    with pytest.raises(ValueError, match="redelivery 0: they count from 1"):
        RetryPolicy().delay_s(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"initial_delay": "0s", "max_redeliveries": None},
            (
                "retry.initial_delay='0s': redelivers for ever without a pause; "
                'give a delay of at least "1ms" and a max_redeliveries'
            ),
        ),
        (
            {"initial_delay": "0s"},
            (
                "retry.initial_delay='0s': no wait at all; a retry topic has one; "
                'give a delay of at least "1ms", or max_redeliveries=0'
            ),
        ),
        ({"delays": ["1s", "0s"]}, "retry.delays='0s': no wait at all"),
        ({"delays": ["0.4ms"], "max_redeliveries": None}, "retry.delays='0.4ms': less than a"),
        ({"delays": [5]}, "retry.delays=5: a bare number has no unit"),
        ({"initial_delay": 1}, 'retry.initial_delay=1: a bare number has no unit; write "1s"'),
        ({"max_delay": "600"}, "retry.max_delay='600': a bare number has no unit"),
        (
            {"initial_delay": "1h"},
            "retry.max_delay='10m': shorter than initial_delay 1h; raise max_delay or lower",
        ),
        ({"multiplier": 0.5}, "retry.multiplier=0.5: delays would shrink; give a number from 1 up"),
        ({"multiplier": True}, "retry.multiplier=True"),
        ({"multiplier": "5"}, "retry.multiplier='5'"),
        ({"multiplier": inf}, "retry.multiplier=inf"),
        ({"multiplier": float("nan")}, "retry.multiplier=nan"),
        (
            {"multiplier": 1.0001, "max_redeliveries": None},
            (
                f"retry.multiplier=1.0001: more than {MOST_STEPS} different delays, and each is a "
                "retry topic; raise multiplier, or lower max_delay or max_redeliveries"
            ),
        ),
        ({"multiplier": 1.01, "max_redeliveries": 500}, "retry.multiplier=1.01: more than"),
        (
            {"delays": ["1s"] * (MOST_STEPS + 1), "max_redeliveries": 200},
            f"retry.delays='{MOST_STEPS + 1} delays': more than",
        ),
        ({"max_redeliveries": -1}, "retry.max_redeliveries=-1: not a count; give 0 for none"),
        ({"max_redeliveries": True}, "retry.max_redeliveries=True: not a count"),
        ({"max_redeliveries": 2.0}, "retry.max_redeliveries=2.0: not a count"),
        (
            {"max_redeliveries": MOST_REDELIVERIES + 1},
            "over 1000000; give None for no limit",
        ),
        ({"jitter": 1.1}, "retry.jitter=1.1: not a share; give a number from 0 to 1"),
        ({"jitter": -0.1}, "retry.jitter=-0.1"),
        ({"jitter": True}, "retry.jitter=True"),
        ({"jitter": float("nan")}, "retry.jitter=nan"),
    ],
)
def test_a_policy_that_can_t_work_is_refused_at_once(
    arguments: dict[str, Any], message: str
) -> None:
    """Construction names field, value and fix."""
    with pytest.raises(SettingError) as refused:
        RetryPolicy(**arguments)

    assert message in str(refused.value)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    """Any policy that is accepted, its limits included."""
    initial_ms = draw(st.integers(1, 60_000))
    budget = draw(st.none() | st.integers(0, MOST_STEPS))
    jitter = draw(st.floats(0, 1))
    if draw(st.booleans()):
        delays_ms = draw(st.lists(st.integers(1, 10**8), min_size=1, max_size=8))
        delays = [timedelta(milliseconds=ms) for ms in delays_ms]
        return RetryPolicy(max_redeliveries=budget, jitter=jitter, delays=delays)
    cap_ms = initial_ms + draw(st.integers(0, 10**6))
    multiplier = draw(st.just(1) | st.floats(1.5, 1e308))
    initial, cap = timedelta(milliseconds=initial_ms), timedelta(milliseconds=cap_ms)
    return RetryPolicy(initial, multiplier, cap, budget, jitter)


@given(policies())
def test_every_delay_a_record_may_wait_has_a_tier(policy: RetryPolicy) -> None:
    """Also past the listed part of an unlimited schedule, and in no more tiers than needed."""
    waited = {policy.delay_s(n) for n in range(1, 200)} - {None}

    assert waited == set(policy.tiers())
    assert list(policy.tiers()) == sorted(set(policy.schedule()))


@given(policies())
def test_the_schedule_is_the_list_of_the_delays(policy: RetryPolicy) -> None:
    """`schedule`, `delay_s` and `total_s` never disagree."""
    schedule = policy.schedule()

    assert schedule == tuple(policy.delay_s(n) for n in range(1, len(schedule) + 1))
    if policy.max_redeliveries is None:
        assert policy.total_s() == inf
        assert {policy.delay_s(len(schedule) + n) for n in range(20)} == {schedule[-1]}
    else:
        assert len(schedule) == policy.max_redeliveries
        assert policy.total_s() == sum(schedule)
        assert policy.delay_s(len(schedule) + 1) is None


@given(policies())
def test_computed_delays_never_shrink_and_stay_within_the_cap(policy: RetryPolicy) -> None:
    """From the initial delay up to the cap, in whole milliseconds."""
    schedule = policy.schedule()

    assert all(policy.delays_s or a <= b for a, b in pairwise(schedule))
    assert all(delay_s <= policy.max_delay_s for delay_s in schedule)
    assert all(delay_s == round(delay_s * 1000) / 1000 for delay_s in schedule)
    assert list(islice(schedule, 1)) == ([policy.initial_delay_s] if schedule else [])


def test_a_budget_of_a_million_is_listed_without_a_million_powers() -> None:
    """Tiers and schedule know where the growth ends."""
    policy = RetryPolicy(max_redeliveries=MOST_REDELIVERIES)

    assert policy.tiers() == (1, 5, 25, 125, 600)
    assert len(policy.schedule()) == MOST_REDELIVERIES


class Invalid(ValueError):
    """A user's own, narrow error."""


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (RetryPolicy(), ()),
        (RetryPolicy(max_redeliveries=None), ("unlimited redeliveries: a poison record",)),
        (RetryPolicy(max_redeliveries=0), ("no redelivery: the first failure sends",)),
        (RetryPolicy.activemq(), ("the whole schedule is over in 6s: a short outage",)),
        (RetryPolicy("1s", 5, "4s", 3), ("the whole schedule is over in 9s",)),
        (RetryPolicy.fixed("5s", 2), ()),
        (RetryPolicy("1s", 5, "5s", 3), ()),
    ],
)
def test_the_preview_warns_of_schedules_a_person_should_look_at(
    policy: RetryPolicy, told: tuple[str, ...]
) -> None:
    """Unlimited, none at all, or over before an outage is."""
    given_ = warnings(policy)

    assert len(given_) == len(told)
    assert all(text.startswith(start) for text, start in zip(given_, told, strict=True))


def test_the_preview_warns_of_a_schedule_longer_than_the_retention() -> None:
    """Only when it is longer, and only where the retention is known."""
    (warning,) = warnings(RetryPolicy(), retention_s=1_200)

    assert warning == "the schedule takes 22m36s, longer than the topic's retention of 20m"
    assert warnings(RetryPolicy(), retention_s=1_356) == ()
    assert len(warnings(RetryPolicy(max_redeliveries=None), retention_s=1)) == 1


@pytest.mark.parametrize("broad", [ValueError, OSError, Exception, BaseException])
def test_the_preview_warns_of_broad_classes_in_dead_letter_on(broad: type[BaseException]) -> None:
    """A class that also covers time-outs or decoding errors of libraries is named."""
    (warning,) = warnings(RetryPolicy(), dead_letter_on=(Invalid, broad))

    assert warning.startswith(f"dead_letter_on names {broad.__name__}: it also covers")
    assert warnings(RetryPolicy(), dead_letter_on=(Invalid, KeyError)) == ()
