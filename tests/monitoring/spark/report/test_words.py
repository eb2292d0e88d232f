"""How the report says numbers and times."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ackfloor_monitoring.spark.report.answer import Replayed
from ackfloor_monitoring.spark.report.formatting import (
    in_short,
    multiple,
    percent,
    seconds,
    spark,
    stretch,
)
from ackfloor_monitoring.spark.report.parts import key_text
from ackfloor_monitoring.spark.report.time_axis import stretch_s
from tests.monitoring.spark.report.samples import REPLAYED_UNKNOWN, REPORT


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


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [
        ((6, 5, 1, 0, 0), "Of 6 replayed dead letters 5 recovered."),
        ((6, 0, 0, 0, 6), "Of 6 replayed dead letters it is not known whether they recovered."),
        (
            (6, 0, 1, 0, 5),
            "Of 6 replayed dead letters 1 died again; of 5 it is not known whether they recovered.",
        ),
        (
            (6, 2, 1, 1, 2),
            (
                "Of 6 replayed dead letters 2 recovered and 1 died again; of 2 it is not known "
                "whether they recovered."
            ),
        ),
    ],
)
def test_replays_of_which_nothing_is_known_are_not_said_to_have_failed(
    ends: tuple[int, int, int, int, int], sentence: str
) -> None:
    """Without a commit a replay that did not die again may have recovered."""
    report = replace(REPORT, replays=(Replayed("billing", "bill", *ends),))
    assert sentence in in_short(report)


def test_in_json_what_is_not_known_is_null() -> None:
    """How many replays healed; what was never replayed healed none, and with commits it is told."""
    causes = json.loads(REPLAYED_UNKNOWN.to_json())["failure_groups"]
    assert {(cause["replayed"], cause["healed"]) for cause in causes} == {(2, None)}
    told = json.loads(REPORT.to_json())
    assert {cause["healed"] for cause in (*told["failure_groups"], *told["new"])} == {1}
    assert told["replays"][0]["recovered"] == 5
