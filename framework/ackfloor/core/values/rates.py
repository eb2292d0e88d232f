"""Rates: typed at the edge, records a second inside.

A bare number does not say of what it is a rate, so a rate is a text: a count, a slash and a unit.
"""

from __future__ import annotations

import re

from ackfloor.core.values.setting_error import SettingError

#: Unit -> its seconds.
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
#: The count of a rate is below it: it may have nine digits.
_MOST = 10**9
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*/\s*(?:([smh])|(min))")
_FIX = 'write a count and a unit of time (s, m or h), such as "100/m"'


def parse_rate(value: str, *, field: str) -> float:
    """A rate in records a second.

    Args:
        value: a text such as "100/m" (or "100/min"), "5/s" or "2000/h".
        field: the setting's name, for the error.

    Raises:
        SettingError: no such text, or a rate of nothing.
    """
    # Typed callers give a text; files, environments and untyped code may not.
    match = _RATE.fullmatch(str(value).strip())
    if match is None:
        raise SettingError(field, value, "not a rate", _FIX)
    rate = float(match[1]) / _UNITS_S[match[2] or "m"]
    if rate <= 0:
        raise SettingError(field, value, "a rate of nothing", _FIX)
    return rate


def format_rate(per_s: float) -> str:
    """A rate for people, in the shortest unit in which it is a whole number.

    What was written as a rate is read back from it, so it has no exponents.
    """
    for unit, seconds in _UNITS_S.items():
        count = per_s * seconds
        if 1 <= count < _MOST and abs(count - round(count)) < 1e-6:
            return f"{round(count)}/{unit}"
    count, unit = (per_s, "s") if per_s >= 1000 else (per_s * 3600, "h")
    return f"{count:.6f}".rstrip("0").rstrip(".") + f"/{unit}"
