"""Durations: typed at the edge, seconds inside.

A bare number has no unit, and a delay read in the wrong one sends a topic to its dead-letter
queue within a second. So a duration is a `timedelta` or a text with units, and nothing else.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from ackfloor.core.errors import SettingError

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
#: Longer than any schedule makes sense, short enough for every clock it is added to.
LONGEST_S = 365 * 86_400.0


def parse_duration(value: timedelta | str, *, field: str) -> float:
    """A duration in seconds.

    Args:
        value: a timedelta, or a text such as "250ms", "30s", "1h30m", "1.5s", "2d".
        field: the setting's name, for the error.

    Raises:
        SettingError: no unit, no number, negative, or over a year.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        if seconds < 0:
            raise SettingError(field, str(value), "a duration can't be negative", _fix("30s"))
    elif isinstance(value, str):
        seconds = _parse(value.strip(), field)
    else:
        raise SettingError(field, value, "a bare number has no unit", _fix(f"{value}s"))
    if seconds > LONGEST_S:
        raise SettingError(field, str(value), "longer than a year", "give at most 365d")
    return seconds


def _parse(text: str, field: str) -> float:
    if not _WHOLE.fullmatch(text):
        bare = re.fullmatch(r"\d+(\.\d+)?", text) is not None
        why = "a bare number has no unit" if bare else "not a duration"
        raise SettingError(field, text, why, _fix(f"{text}s" if bare else "30s"))
    total_ms = sum(
        (Fraction(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)), Fraction(0)
    )
    return float(total_ms / 1000)


def _fix(example: str) -> str:
    return f'write a number with its unit (ms, s, m, h, d) such as "{example}", or a timedelta'


def format_duration(seconds: float) -> str:
    """A duration for people: "2m5s", "1h30m", "250ms", "0s"."""
    left_ms = round(seconds * 1000)
    if left_ms == 0:
        return "0s"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left_ms = divmod(left_ms, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_exact_unit(seconds: float) -> str:
    """A duration in its largest exact unit, as topic names carry it: "1500ms", "90s", "10m".

    Raises:
        ValueError: it is not a whole, positive number of milliseconds.
    """
    ms = round(seconds * 1000)
    if ms <= 0 or abs(seconds * 1000 - ms) > 1e-6 * max(1.0, ms):
        raise ValueError(f"{seconds!r} s is no whole, positive number of milliseconds")
    unit = next(u for u in ("d", "h", "m", "s", "ms") if ms % _UNITS_MS[u] == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"
