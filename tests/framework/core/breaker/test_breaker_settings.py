"""CircuitBreaker: its settings are those that were given, or refused with the field and the fix."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.values.setting_error import SettingError


def test_as_it_is_by_default() -> None:
    """Fifty in a row, ten after five minutes, a hundred a minute."""
    breaker = CircuitBreaker()
    assert (breaker.failures, breaker.quiet_failures, breaker.quiet_after_s) == (50, 10, 300.0)
    assert breaker.park_rate_per_s == pytest.approx(100 / 60)
    assert (breaker.gives_in_after_s, breaker.enabled) == (3600.0, True)


def test_fewer_failures_are_enough_at_any_time() -> None:
    """So they are also enough when it is quiet."""
    assert CircuitBreaker(5).quiet_failures == 5
    assert CircuitBreaker(5, 2, timedelta(seconds=9)).quiet_after_s == 9.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"failures": 0}, "breaker.failures=0: not a number of records; write 1 to 100000"),
        ({"failures": True}, "breaker.failures=True: not a number of records"),
        ({"failures": 2.5}, "breaker.failures=2.5: not a number of records"),
        ({"quiet_failures": 0}, "breaker.quiet_failures=0: not a number of records"),
        ({"failures": 5, "quiet_failures": 6}, "breaker.quiet_failures=6: more than failures=5"),
        ({"quiet_after": "0s"}, "breaker.quiet_after='0s': no time at all"),
        ({"quiet_after": 300}, "breaker.quiet_after=300: a bare number has no unit"),
        ({"gives_in_after": "0s"}, "breaker.gives_in_after='0s': no time at all"),
        ({"park_rate": 100}, "breaker.park_rate=100: not a rate"),
        ({"enabled": 1}, "breaker.enabled=1: neither true nor false"),
    ],
)
def test_what_can_not_be_meant_is_refused(options: dict[str, object], message: str) -> None:
    """With the field, the value and the fix."""
    with pytest.raises(SettingError) as refused:
        CircuitBreaker(**options)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_its_rate_is_told_as_it_was_written() -> None:
    """Settings are shown to those who wrote them."""
    assert CircuitBreaker(park_rate="30/m").park_rate == "30/m"
