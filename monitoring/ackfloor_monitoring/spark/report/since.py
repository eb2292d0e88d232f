"""`--since`: from when on something is new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ackfloor import SettingError
from ackfloor.core.durations import parse_duration
from ackfloor_monitoring.spark.errors import BadSince


def since_time(text: str, now: datetime) -> datetime:
    """A date or time (in UTC where it names no zone), or how long ago: "24h", "7d", "1h30m".

    Raises:
        BadSince: it is neither, or lies in the future.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = now - _ago(text)
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    if time > now:
        raise BadSince(f"--since {text!r} lies in the future: nothing could be new since then")
    return time


def _ago(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text, field="since"))
    except SettingError:
        raise BadSince(
            f"--since {text!r} is neither a time nor a duration: give a date (2026-10-20), a time "
            "(2026-10-20T14:30), or how long ago (90m, 24h, 7d)"
        ) from None
