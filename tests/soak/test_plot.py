"""The picture of a soak can be drawn from a kept result, and so can its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.plot import draw, smooth
from tests.soak.report import Result, per_second, row

RESULT = Result(
    seed=7,
    minutes=1,
    protocol="range",
    command="make soak MINUTES=1 SEED=7",
    clean=False,
    records=1200,
    produced={"ok": 1200},
    counts={"dead letters": 3, "repeats": 4, "copies in tiers": 5, "copies in the DLQ": 1},
    findings={"lost": ["one of them"]},
    faults=[
        {"kind": "kill worker", "family": "workers", "from_s": 3.0, "to_s": 3.1, "failed": ""},
        {"kind": "hold network", "family": "network", "from_s": 5.0, "to_s": 9.0, "failed": ""},
        {"kind": "kill broker", "family": "brokers", "from_s": 6.0, "to_s": 7.0, "failed": "no"},
    ],
    workers=4,
    settled_after_s=8.0,
    ended_s=60.0,
    acked=[20] * 60,
    ends=[19] * 68,
    states=[(float(s), 5 * s, s, 2 * s) for s in range(60)],
    rss=[(float(s), 50.0, 60.0) for s in range(60)],
)


def test_a_kept_result_is_read_again_and_told_in_a_row(tmp_path: Path) -> None:
    """What is kept is all that the row and the picture need; what was no fault is not told."""
    file = tmp_path / "result.json"
    RESULT.write(file)
    assert row(Result.read(file)) == (
        "| `make soak MINUTES=1 SEED=7` | range | 1,200 | 3 | 2 of 2 kinds | 4 "
        "| 6 | 1 | 0 | 0 | not clean |"
    )


def test_rates_are_per_second_and_smoothed() -> None:
    """Moments before the start do not count, and the ends of the curve are no cliffs."""
    assert per_second([9.0, 10.5, 10.6, 12.0], 10.0) == [2, 0, 1]
    assert smooth([3, 0, 3, 3]) == [3.0, 1.5, 2.0, 2.0]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    """As a PNG of some size."""
    pytest.importorskip("matplotlib", reason="installed by `make setup`")
    picture = tmp_path / "soak.png"
    draw(RESULT, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
