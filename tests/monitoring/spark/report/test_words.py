"""How the report says numbers and times, and reads `--since`."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ackfloor_monitoring.spark.errors import BadSince
from ackfloor_monitoring.spark.report.build import bucket_s
from ackfloor_monitoring.spark.report.shares import key_text
from ackfloor_monitoring.spark.report.since import since_time
from ackfloor_monitoring.spark.report.words import multiple, percent, seconds, spark, stretch
from tests.monitoring.spark.report.samples import REPORT

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "at once"), (0.045, "45 ms"), (1.54, "1.5 s"), (60, "1m 0s"), (1516.4, "25m 16s"),
        (3_599.9, "1h 0m"), (10_950, "3h 2m"), (90_000, "1d 1h"),
    ],
)  # fmt: skip
def test_durations(amount: float, said: str) -> None:
    """In the two largest units."""
    assert seconds(amount) == said


def test_shares_and_multiples() -> None:
    """A small number is never said to be none."""
    assert [percent(x) for x in (0, 0.0004, 0.0123, 0.5)] == [
        "0.0 %",
        "< 0.1 %",
        "1.2 %",
        "50 %",
    ]
    assert [multiple(x) for x in (0, 0.00045, 2.5)] == ["0.00", "0.00045", "2.50"]


def test_sparks_keep_their_sum_when_they_are_narrow() -> None:
    """Neighbours are added up, the largest is full, nothing is blank but nothing."""
    assert spark([0, 1, 8, 8], 4) == " ▁██"
    assert len(spark(list(range(100)), 30)) <= 30
    assert spark([], 10) == ""


def test_keys_are_text_where_they_can_be() -> None:
    """Anything else is hexadecimal, so two keys never look the same."""
    assert [key_text(k) for k in (b"a-1", b"\xff\x00", b"a\nb", b"")] == [
        "a-1", "0xff00", "0x610a62", "0x"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T10:30+02:00", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("24h", datetime(2026, 3, 9, 12, tzinfo=UTC)),
        ("1h30m", datetime(2026, 3, 10, 10, 30, tzinfo=UTC)),
    ],
)
def test_since(text: str, time: datetime) -> None:
    """A date, a time, or how long ago."""
    assert since_time(text, NOW) == time


@pytest.mark.parametrize("text", ["yesterday", "", "12", "2026-13-01", "2026-03-11", "-1h"])
def test_bad_since_is_told(text: str) -> None:
    """The sentence names the value; it is wrong usage."""
    with pytest.raises(BadSince, match=re.escape(repr(text))) as refused:
        since_time(text, NOW)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("period_s", "words"),
    [
        (80, "5 seconds"), (1_200, "minute"), (7_200, "5 minutes"), (40_000, "30 minutes"),
        (100_000, "hour"), (600_000, "6 hours"), (2_600_000, "day"),
    ],
)  # fmt: skip
def test_a_stretch_of_time_fits_the_period(period_s: float, words: str) -> None:
    """Some dozen columns, whether a demo of a minute is looked at or a month."""
    length_s = bucket_s(period_s)
    assert 16 <= period_s / length_s <= 90
    assert stretch(replace(REPORT, bucket_s=length_s)) == words
