"""How the report says numbers and times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor_monitoring.spark.report.formatting import multiple, percent, seconds, spark, stretch
from ackfloor_monitoring.spark.report.parts import key_text
from ackfloor_monitoring.spark.report.time_axis import stretch_s
from tests.monitoring.spark.report.samples import REPORT


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
    ("period_s", "words"),
    [
        (80, "5 seconds"), (1_200, "minute"), (7_200, "5 minutes"), (40_000, "30 minutes"),
        (100_000, "hour"), (600_000, "6 hours"), (2_600_000, "day"),
        (30_000_000, "week"), (90_000_000, "4 weeks"),
    ],
)  # fmt: skip
def test_a_stretch_of_time_fits_the_period(period_s: float, words: str) -> None:
    """Some dozen columns, whether a demo of a minute is looked at or a month."""
    length_s = stretch_s(period_s)
    assert 16 <= period_s / length_s <= 90
    assert stretch(replace(REPORT, bucket_s=length_s)) == words
