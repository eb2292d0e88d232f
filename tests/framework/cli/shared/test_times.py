"""Times on the command line: what is understood, and what is refused in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
import typer

from ackfloor.cli.shared.times import time_of

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T10:30+02:00", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("24h", datetime(2026, 3, 9, 12, tzinfo=UTC)),
        ("1h30m", datetime(2026, 3, 10, 10, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_date_a_time_or_how_long_ago(text: str, time: datetime) -> None:
    """In UTC, whatever zone it was written in."""
    found = time_of("--since", text, NOW)
    assert (found, found.tzinfo) == (time, UTC)


@pytest.mark.parametrize(
    "text",
    ["yesterday", "", "12", "2026-13-01", "-1h", "999d", "0001-01-01T00:00+14:00"],
)
def test_anything_else_is_refused(text: str) -> None:
    """The sentence names the option and the value."""
    with pytest.raises(typer.BadParameter, match=re.escape(repr(text))) as refused:
        time_of("--until", text, NOW)
    assert refused.value.param_hint == "--until"
