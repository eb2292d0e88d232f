"""Durations: what is read, what is refused with which words, and how they print."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackfloor.core.values.durations import (
    LONGEST_S,
    format_duration,
    format_exact_unit,
    format_rounded,
    parse_duration,
)
from ackfloor.core.values.setting_error import SettingError

whole_ms = st.integers(1, round(LONGEST_S * 1000))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("2m5s", 125.0),
        ("1h30m", 5_400.0),
        ("5m250ms", 300.25),
        ("2d", 172_800.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("365d", LONGEST_S),
        ("0s", 0.0),
        ("  30s ", 30.0),
        (timedelta(minutes=1, milliseconds=5), 60.005),
        (timedelta(0), 0.0),
    ],
)
def test_a_duration_is_a_timedelta_or_a_text_with_units(
    value: timedelta | str, seconds: float
) -> None:
    """Every unit, fractions and combinations are read as seconds."""
    assert parse_duration(value, field="consume_timeout") == seconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (30, 'consume_timeout=30: a bare number has no unit; write "30s"'),
        ("30", "consume_timeout='30': a bare number has no unit; write 30s"),
        (1.5, 'consume_timeout=1.5: a bare number has no unit; write "1.5s"'),
        (-5, "consume_timeout=-5: a duration can't be negative; write numbers with units"),
        ("-5s", "consume_timeout='-5s': a duration can't be negative"),
        ("0.5ms", "consume_timeout='0.5ms': less than a millisecond; write \"1ms\" or more"),
        (timedelta(seconds=-1), "a duration can't be negative"),
        (True, "consume_timeout=True: not a duration; write numbers with units, largest first"),
        (None, "consume_timeout=None: not a duration"),
        (float("nan"), "consume_timeout=nan: not a duration"),
        (float("inf"), "consume_timeout=inf: not a duration"),
        ("", "consume_timeout='': empty; write numbers with units"),
        ("   ", "consume_timeout='': empty"),
        ("soon", "consume_timeout='soon': not a duration"),
        ("30 s", "not a duration"),
        ("30S", "not a duration"),
        ("٣s", "not a duration"),
        ("1s5s", "not a duration"),
        ("1s1m", "not a duration"),
        (".5s", "not a duration"),
        ("1e3s", "not a duration"),
        ("366d", "consume_timeout='366d': longer than a year; give at most 365d"),
        (timedelta.max, "longer than a year"),
        ("9" * 60 + "d", "longer than a year"),
        ("9" * 5_000 + "s", "consume_timeout='99999999999999999999...': not a duration"),
    ],
)
def test_what_is_refused_names_field_value_and_fix(value: Any, message: str) -> None:
    """Bare numbers, negatives, typos and absurd lengths are told in one line."""
    with pytest.raises(SettingError) as refused:
        parse_duration(value, field="consume_timeout")

    assert message in str(refused.value)
    assert refused.value.field == "consume_timeout"
    assert "\n" not in str(refused.value)


@given(st.text() | st.from_regex(r"\A[0-9.]{0,9}(ms|s|m|h|d)?[0-9]{0,80}(ms|s|m|h|d)?\Z"))
def test_any_text_is_a_duration_within_a_year_or_refused_as_a_setting(text: str) -> None:
    """No text makes the parser fail in another way."""
    try:
        seconds = parse_duration(text, field="f")
    except SettingError:
        return
    assert 0 <= seconds <= LONGEST_S


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (125, "2m5s"),
        (5_400, "1h30m"),
        (1_356, "22m36s"),
        (93_784.005, "1d2h3m4s5ms"),
        (-90, "-1m30s"),
    ],
)
def test_durations_print_for_people(seconds: float, text: str) -> None:
    """Each unit that has a share is named, to the millisecond."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "1s"), (0.4, "1s"), (1.6, "2s"), (89.5, "1m30s"), (-3.0, "1s")]
)
def test_what_needs_no_fraction_has_none(seconds: float, text: str) -> None:
    """And is never nothing."""
    assert format_rounded(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.001, "1ms"),
        (1.5, "1500ms"),
        (5, "5s"),
        (90, "90s"),
        (600, "10m"),
        (7_200, "2h"),
        (86_400, "1d"),
        (129_600, "36h"),
        (0.1 + 0.2, "300ms"),
    ],
)
def test_topic_names_carry_the_largest_exact_unit(seconds: float, text: str) -> None:
    """One number and one unit, with nothing rounded away."""
    assert format_exact_unit(seconds) == text


@pytest.mark.parametrize(
    "seconds", [0, -1, 0.0004, 0.0015, 600.0004, LONGEST_S + 1, float("inf"), float("nan")]
)
def test_a_fraction_of_a_millisecond_has_no_exact_unit(seconds: float) -> None:
    """What a topic name can't carry exactly is refused, however long the rest of it is."""
    with pytest.raises(SettingError, match="whole, positive number of milliseconds; give at least"):
        format_exact_unit(seconds)


@given(whole_ms)
@example(round(LONGEST_S * 1000))
def test_both_forms_read_back_to_the_same_millisecond(ms: int) -> None:
    """What we print, for people or for names, means what it was made from."""
    seconds = ms / 1000

    assert parse_duration(format_exact_unit(seconds), field="f") == seconds
    assert parse_duration(format_duration(seconds), field="f") == seconds


@given(whole_ms, whole_ms)
def test_two_delays_never_share_a_name(one: int, other: int) -> None:
    """The exact form is different wherever the milliseconds are."""
    assert (format_exact_unit(one / 1000) == format_exact_unit(other / 1000)) == (one == other)


def test_a_refusal_crosses_a_process_whole() -> None:
    """A pickled SettingError keeps its parts and its text."""
    refused = SettingError("retry.jitter", 2, "not a share", "give a number from 0 to 1")
    again = pickle.loads(pickle.dumps(refused))

    assert str(again) == "retry.jitter=2: not a share; give a number from 0 to 1" == str(refused)
    assert (again.field, again.value, again.why, again.fix) == (
        "retry.jitter",
        2,
        "not a share",
        "give a number from 0 to 1",
    )
    assert isinstance(again, ValueError)
