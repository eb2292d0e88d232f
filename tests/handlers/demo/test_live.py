"""The live view: a picture in a terminal, lines elsewhere, both of what `/state` says."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ackfloor_handlers.demo import demo_processes, live_view
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_processes import Pipeline
from ackfloor_handlers.demo.live_view import LiveView
from ackfloor_handlers.demo.run_watch import NOTHING, Counts, read_state
from tests.handlers.demo.test_watch import exposition, partition, state

WIDTH = 100


def shown(*, terminal: bool, lose: bool = False) -> str:
    """What a view prints of a small run; with `lose` its partitions lose their worker."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=WIDTH, height=50, color_system=None)
    counts = Counts()
    counts.read(exposition(1, 1_234, error=5, timeout=3))
    tier = partition("orders--billing--retry-1s", 0, tier_s=1.0, position=9, high_watermark=9)
    view = read_state(state(partition("orders", 3), tier, faults=("refused",)))
    with LiveView(console, "demo", total=2_000) as live:
        live.tell("something happened")
        live.show(view, counts, 1_500)
        if lose:
            live.show(NOTHING, counts, 1_500)
    return out.getvalue()


def test_the_picture_shows_throughput_floors_gaps_and_what_was_parked() -> None:
    """Everything a person looks for, on one screen."""
    picture = shown(terminal=True)
    for text in ("1,234", "1,500", "error 5, timeout 3", "orders/3", "retry-1s", "refused"):
        assert text in picture
    assert "something happened" in picture
    assert max(len(line) for line in picture.splitlines()) <= WIDTH + 20  # with cursor codes


def test_a_partition_without_a_worker_stays_in_the_picture() -> None:
    """A killed worker's partitions are shown as they were seen last."""
    last = shown(terminal=True, lose=True).rpartition("partition")[2]
    assert "orders/3" in last
    assert "none" in last


def test_without_a_terminal_news_are_lines() -> None:
    """In a log every piece of news is one line, and nothing is drawn."""
    lines = shown(terminal=False).splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("s  something happened")


def test_what_goes_on_for_long_is_told_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each time that somebody looks."""
    out, now_s = io.StringIO(), [100.0]
    monkeypatch.setattr(live_view.time, "monotonic", lambda: now_s[0])
    with LiveView(Console(file=out, width=WIDTH), "demo", total=10) as live:
        for _ in range(60):
            now_s[0] += 0.2
            live.tell_seldom("Spark works")
    assert out.getvalue().count("Spark works") == 2


def test_while_spark_works_the_demo_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it ends: here at once, because its page would be a folder."""
    monkeypatch.setattr(demo_processes, "_LOOK_EVERY_S", 0.01)
    told: list[str] = []
    failure = pytest.raises(DemoFailed, match="Spark's report ended with code")
    with Pipeline("nowhere:1", tmp_path, page=tmp_path) as pipeline, failure:
        pipeline.ask()
        pipeline.report(told.append)
    assert told
    assert told[0].startswith("Spark has worked on its report for ")
