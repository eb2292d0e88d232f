"""The value types of settings: durations, sizes, lists; how they are read and how they print.

An attribute's name ends in its unit (`drain_timeout_s`, `max_open_bytes`) and that is also how
`spelled` knows what to print; the setting's own name (`drain_timeout`) is the field's alias.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, cast

from pydantic import BeforeValidator, SecretStr

from ackfloor.core.values.durations import format_duration, parse_duration
from ackfloor.core.values.rates import format_rate, parse_rate
from ackfloor.core.values.setting_error import SettingError
from ackfloor.core.values.sizes import parse_size

_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))

#: What stands for None where a file or a variable has to say it.
NO_VALUE = ("none", "unlimited")


def _duration(value: object) -> float:
    return parse_duration(cast("timedelta | str", value), field="value")


def _positive(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise SettingError("value", value, "no time at all", 'write a duration such as "30s"')
    return seconds


def _optional(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in NO_VALUE else value


def _positive_or_none(value: object) -> float | None:
    value = _optional(value)
    return None if value is None else _positive(value)


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    return parse_size(value, field="value")


def _size_or_none(value: object) -> object:
    return _size(_optional(value))


def _rate_or_none(value: object) -> float | None:
    value = _optional(value)
    return None if value is None else parse_rate(cast("str", value), field="value")


def _durations(value: object) -> object:
    if isinstance(value, str) and value.strip().startswith("["):
        # As it stands in a file; a variable and `config set` give the same as text.
        fix = "write them with commas between, without brackets and quotes: 1s,1m"
        raise SettingError("value", value, "not durations with commas between", fix)
    value = listed(_optional(value))
    if value is None:
        return ()
    if not isinstance(value, Sequence):
        why, fix = "not a list of durations", 'write ["1s", "1m"], or "none"'
        raise SettingError("value", value, why, fix)
    return tuple(_duration(part) for part in value)


def listed(value: object) -> object:
    """A list, or text with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _joined(value: object) -> object:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(part) for part in value)
    return value


#: Seconds, from a timedelta or "1h30m"; a bare number is refused.
Duration = Annotated[float, BeforeValidator(_duration)]
PositiveDuration = Annotated[float, BeforeValidator(_positive)]
#: A duration, or "none" for no limit.
OptionalDuration = Annotated[float | None, BeforeValidator(_positive_or_none)]
#: Seconds, from a list of durations or text with commas; empty from "none".
Durations = Annotated[tuple[float, ...], BeforeValidator(_durations)]
#: Bytes, from a whole number or "256MiB".
Size = Annotated[int, BeforeValidator(_size)]
#: Bytes, or "none" for no limit.
OptionalSize = Annotated[int | None, BeforeValidator(_size_or_none)]
#: Records a second, from "100/s", or "none" for no limit.
OptionalRate = Annotated[float | None, BeforeValidator(_rate_or_none)]
#: A whole number, or "unlimited".
OptionalCount = Annotated[int | None, BeforeValidator(_optional)]
#: Text, from itself or from a list that is joined by commas.
Joined = Annotated[str, BeforeValidator(_joined)]


def spelled(attribute: str, value: object) -> str:
    """A value as its user would write it; secrets as `***`."""
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _spelled_number(attribute, value)
    if isinstance(value, tuple | list):
        return ",".join(spelled(attribute, part) for part in value)
    if callable(value):
        return f"<{getattr(value, '__qualname__', type(value).__name__)}>"
    return str(value)


def _spelled_number(attribute: str, value: float) -> str:
    if attribute.endswith("_per_s"):
        return format_rate(value)
    if attribute.endswith("_s"):
        return format_duration(value)
    if attribute.endswith("_bytes"):
        return _spelled_size(int(value))
    return str(int(value)) if value == int(value) else str(value)


def _spelled_size(size: int) -> str:
    for unit, factor in _UNITS:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


#: Also misspelt ones: the client refuses them, and its message has the value.
_SECRET = re.compile(
    r"pass|pas*wo?r|pwd|secret|credential|token(?!\.endpoint)|\.pem$|sasl\.jaas|oauthbearer\.config",
    re.IGNORECASE,
)


def is_secret_property(name: str) -> bool:
    """Whether a librdkafka property holds something that must not be shown."""
    return _SECRET.search(name) is not None
