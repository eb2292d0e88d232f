"""Rates: what is written is what is meant, or it is refused with the fix."""

from __future__ import annotations

import pytest

from ackfloor.core.values.rates import format_rate, parse_rate
from ackfloor.core.values.setting_error import SettingError


@pytest.mark.parametrize(
    ("text", "per_s", "shown"),
    [
        ("100/m", 100 / 60, "100/m"),
        ("5/s", 5.0, "5/s"),
        ("6000/min", 100.0, "100/s"),
        ("7/min", 7 / 60, "7/m"),
        (" 90 / m ", 1.5, "90/m"),
        ("120/m", 2.0, "2/s"),
        ("1/h", 1 / 3600, "1/h"),
        ("0.5/s", 0.5, "30/m"),
        ("0.5/h", 0.5 / 3600, "0.5/h"),
        ("0.00001/h", 0.00001 / 3600, "0.00001/h"),
        ("123456.7/h", 123456.7 / 3600, "123456.7/h"),
        ("1234.5678/s", 1234.5678, "1234.5678/s"),
        ("277777777.5/s", 277777777.5, "277777777.5/s"),
    ],
)
def test_a_rate_is_a_count_and_a_unit(text: str, per_s: float, shown: str) -> None:
    """Records a second inside; the shortest unit in which it is whole for people."""
    assert parse_rate(text, field="f") == pytest.approx(per_s)
    assert format_rate(per_s) == shown
    assert parse_rate(shown, field="f") == pytest.approx(per_s)


@pytest.mark.parametrize(
    "value", ["", "100", "100/d", "100/mi", "-1/s", "1e3/s", "/s", "nan/s", 100, None]
)
def test_what_is_no_rate_is_refused(value: object) -> None:
    """A bare number above all: it does not say of what."""
    with pytest.raises(SettingError, match="not a rate; write a count and a unit"):
        parse_rate(value, field="f")  # type: ignore[arg-type]


def test_a_rate_of_nothing_is_refused() -> None:
    """It would withhold everything."""
    with pytest.raises(SettingError, match="a rate of nothing"):
        parse_rate("0/s", field="f")
