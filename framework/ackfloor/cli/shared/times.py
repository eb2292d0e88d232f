"""Times: read from the command line, and formatted for output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError


def time_of(option: str, text: str, now: datetime) -> datetime:
    """A date or time, in UTC if it names no zone, or how long before `now`.

    Raises:
        typer.BadParameter: it is neither.
    """
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        why = "has no place in this calendar"
    except ValueError:
        try:
            return now - timedelta(seconds=parse_duration(text, field=option))
        except SettingError:
            why = "is neither a time nor a duration"
    raise typer.BadParameter(
        f"{text!r} {why}: give a date (2026-10-20), a time (2026-10-20T14:30), or how long ago "
        "(90m, 24h, 7d)",
        param_hint=option,
    )


def moment(at_ms: int) -> str:
    """A time in UTC, to the second; "-" if there is none."""
    if at_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):  # a header may hold any number
        return f"{at_ms} ms"
