"""CircuitBreaker: the settings of a handler's circuit breaker; `breaker` has the rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.rates import format_rate, parse_rate
from ackfloor.core.values.setting_error import SettingError

#: Failures in a row that open a breaker.
FAILURES = 50
#: The same while nothing has succeeded for long.
QUIET_FAILURES = 10
MOST_FAILURES = 100_000


@dataclass(frozen=True, init=False, slots=True)
class CircuitBreaker:
    """When a handler's failures stop filling its retry and dead-letter topics, and how far.

    Args:
        failures: so many different records in a row whose first deliveries fail open it.
        quiet_failures: so many are enough while nothing has succeeded for `quiet_after`; by
            default 10, or `failures` where that is less.
        quiet_after: see there.
        park_rate: how many failed records may leave for the retry topics while it is not closed,
            of the whole group: each worker takes its share of the partitions.
        gives_in_after: it closes after so long with nothing but redeliveries to try: what is left
            is poison, or nothing comes any more.
        enabled: False: it never opens.

    Raises:
        SettingError: a value is refused; the message names it and the fix.
    """

    failures: int
    quiet_failures: int
    quiet_after_s: float
    park_rate_per_s: float
    gives_in_after_s: float
    enabled: bool

    def __init__(
        self,
        failures: int = FAILURES,
        quiet_failures: int | None = None,
        quiet_after: timedelta | str = "5m",
        park_rate: str = "100/m",
        gives_in_after: timedelta | str = "1h",
        *,
        enabled: bool = True,
    ) -> None:
        _check_count("failures", failures)
        if quiet_failures is None:
            quiet_failures = min(QUIET_FAILURES, failures)
        _check_count("quiet_failures", quiet_failures)
        if quiet_failures > failures:
            why = f"more than failures={failures}, which are enough at any time"
            fix = "lower quiet_failures, or raise failures"
            raise SettingError("breaker.quiet_failures", quiet_failures, why, fix)
        if not isinstance(enabled, bool):
            fix = "write true or false"
            raise SettingError("breaker.enabled", enabled, "neither true nor false", fix)
        for name, value in (
            ("failures", failures),
            ("quiet_failures", quiet_failures),
            ("quiet_after_s", _positive("quiet_after", quiet_after)),
            ("park_rate_per_s", parse_rate(park_rate, field="breaker.park_rate")),
            ("gives_in_after_s", _positive("gives_in_after", gives_in_after)),
            ("enabled", enabled),
        ):
            object.__setattr__(self, name, value)

    @property
    def park_rate(self) -> str:
        """The rate as its user would write it."""
        return format_rate(self.park_rate_per_s)


def _positive(name: str, value: timedelta | str) -> float:
    seconds = parse_duration(value, field=f"breaker.{name}")
    if seconds <= 0:
        fix = 'write a duration such as "5m"'
        raise SettingError(f"breaker.{name}", format_duration(seconds), "no time at all", fix)
    return seconds


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_FAILURES:
        fix = f"write 1 to {MOST_FAILURES}"
        raise SettingError(f"breaker.{name}", count, "not a number of records", fix)
