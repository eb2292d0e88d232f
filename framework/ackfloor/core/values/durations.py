"""Durations: typed at the edge, seconds inside.

A bare number has no unit, and a delay read in the wrong one sends a topic to its dead-letter
queue within a second. So a duration is a `timedelta` or a text with units, and nothing else.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from ackfloor.core.values.setting_error import SettingError

#: Largest first, which is also the order in which a text names them.
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# Each unit at most once: "1s5s" is a list that someone took for a duration, not six seconds.
_DURATION = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_MS))
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
#: No duration is written with more characters; also bounds the numbers that are computed with.
_LONGEST_TEXT = 64
#: Longer than any schedule makes sense, short enough for every clock it is added to.
LONGEST_S = 365 * 86_400.0

_FIX = "write numbers with units, largest first (d, h, m, s, ms), such as 1h30m"


def parse_duration(value: timedelta | str, *, field: str) -> float:
    """A duration in seconds.

    Args:
        value: a timedelta, or a text such as "250ms", "30s", "1h30m", "1.5s", "2d".
        field: the setting's name, for the error.

    Raises:
        SettingError: no unit, no number, negative, below a millisecond (in a text), or over a year.
    """
    if isinstance(value, timedelta):
        seconds, shown = value.total_seconds(), str(value)
        if seconds < 0:
            raise SettingError(field, shown, "a duration can't be negative", _FIX)
    elif isinstance(value, str):
        seconds, shown = _parse(value.strip(), field), value.strip()
    else:
        # Typed callers can't come here; files, environments and untyped code do.
        raise _refuse(value, str(value), field)
    if seconds > LONGEST_S:
        raise SettingError(field, shown, "longer than a year", "give at most 365d")
    return seconds


def _parse(text: str, field: str) -> float:
    if len(text) > _LONGEST_TEXT:
        raise SettingError(field, f"{text[:20]}...", "not a duration", _FIX)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise _refuse(text, text, field)
    parts = zip(match.groups(), _UNITS_MS.values(), strict=True)
    ms = sum(Fraction(number) * unit_ms for number, unit_ms in parts if number)
    if 0 < ms < 1:
        # It would print as no time at all.
        raise SettingError(field, text, "less than a millisecond", 'write "1ms" or more')
    return float(ms / 1000)


def _refuse(value: object, text: str, field: str) -> SettingError:
    """Why this is no duration, and what its writer most likely meant."""
    if not text:
        return SettingError(field, value, "empty", _FIX)
    if text.startswith("-"):
        return SettingError(field, value, "a duration can't be negative", _FIX)
    if _NUMBER.fullmatch(text):
        # What came as text is corrected where it was written, which may be a shell.
        fix = f"write {text}s" if isinstance(value, str) else f'write "{text}s"'
        return SettingError(field, value, "a bare number has no unit", fix)
    return SettingError(field, value, "not a duration", _FIX)


def format_duration(seconds: float) -> str:
    """A duration for people: "2m5s", "1h30m", "250ms", "0s"; whole milliseconds."""
    left_ms = round(abs(seconds) * 1000)
    if left_ms == 0:
        return "0s"
    parts = ["-"] if seconds < 0 else []
    for unit, unit_ms in _UNITS_MS.items():
        count, left_ms = divmod(left_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_rounded(seconds: float) -> str:
    """A duration for people who need no fraction: whole seconds, at least one."""
    return format_duration(max(1, round(seconds)))


def format_exact_unit(seconds: float) -> str:
    """A duration in its largest exact unit, as topic names carry it: "1500ms", "90s", "10m".

    Raises:
        SettingError: it is not a whole, positive number of milliseconds.
    """
    ms = round(seconds * 1000) if 0 < seconds <= LONGEST_S else 0
    # Seconds are floats: 0.1 s times 1000 may miss 100 by its rounding, never by a microsecond.
    if ms == 0 or abs(seconds * 1000 - ms) > 5e-4:
        why = "not a whole, positive number of milliseconds"
        raise SettingError("delay", seconds, why, 'give at least "1ms", and no fraction of one')
    unit = next(unit for unit, unit_ms in _UNITS_MS.items() if ms % unit_ms == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"
