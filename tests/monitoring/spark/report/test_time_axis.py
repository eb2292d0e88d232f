"""The axis of time: a wrong clock stretches it by nothing, and its stretches are some dozen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ackfloor_monitoring.spark.report.time_axis import (
    DAY_MS,
    EARLIEST_DAY,
    Period,
    day_after,
    drawn_days,
    stretch_s,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
END = day_after(NOW)
MONTH = {END - 40 + day: 1_000 for day in range(31)}
OF_2090 = (datetime(2090, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days


def year(number: int) -> int:
    """Its first day, counted from 1970."""
    return (datetime(number, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days


@pytest.mark.parametrize("wrong", [0, year(2000), EARLIEST_DAY - 1, END, OF_2090])
@pytest.mark.parametrize("records", [1, 50_000])
def test_an_impossible_day_is_left_out_however_much_lies_there(wrong: int, records: int) -> None:
    """Nothing failed before Kafka was there, or will have failed tomorrow."""
    assert drawn_days({**MONTH, wrong: records}, END) == (min(MONTH), max(MONTH))


def test_a_few_far_records_are_left_out_and_all_at_once_are_not() -> None:
    """Who is right can be said where nearly all agree."""
    assert drawn_days({**MONTH, year(2016): 3, year(2019): 5}, END) == (min(MONTH), max(MONTH))
    assert drawn_days({**MONTH, year(2016): 30_000}, END) == (year(2016), max(MONTH))
    assert drawn_days({year(2016): 1, year(2026): 1}, END) == (year(2016), year(2026))


def test_what_is_quiet_for_a_while_is_not_far() -> None:
    """A history may begin with one failure, and have a gap as long as the rest."""
    early = min(MONTH) - 30
    assert drawn_days({**MONTH, early: 1}, END) == (early, max(MONTH))
    assert drawn_days({**MONTH, min(MONTH) - 32: 1}, END) == (min(MONTH), max(MONTH))
    years = dict.fromkeys(range(year(2024), year(2026)), 10)
    assert drawn_days({**years, year(2023): 1}, END) == (year(2023), year(2026) - 1)


def test_where_all_days_are_impossible_all_are_drawn() -> None:
    """Our own clock is the one that is wrong."""
    assert drawn_days({OF_2090: 5, OF_2090 + 3: 1}, END) == (OF_2090, OF_2090 + 3)
    assert drawn_days({0: 5}, END) == (0, 0)


def test_a_clock_that_is_a_little_fast_is_drawn() -> None:
    """A failure of this evening, from a time zone's worth ahead, is one."""
    assert drawn_days({END - 1: 1}, END) == (END - 1, END - 1)
    assert day_after(NOW) == day_after(NOW.replace(hour=0))


@pytest.mark.parametrize("days", [0.001, 0.1, 1, 9, 94, 96, 400, 700, 4_000, 3_000_000])
def test_an_axis_has_some_dozen_stretches(days: float) -> None:
    """However long the period: what is drawn is bounded."""
    period = Period(0, round(days * DAY_MS))
    assert len(period.starts) <= 97
    assert period.starts[0] <= period.first_ms
    assert period.starts[-1] <= period.last_ms < period.starts[-1] + period.stretch_ms


def test_a_week_begins_on_monday() -> None:
    """And a day at midnight, in UTC."""
    period = Period(year(2025) * DAY_MS + 5, year(2026) * DAY_MS)
    assert period.stretch_ms == 7 * DAY_MS
    assert datetime.fromtimestamp(period.starts[0] / 1000, UTC) == datetime(
        2024, 12, 30, tzinfo=UTC
    )
    assert stretch_s(86_400 * 60) == 86_400
