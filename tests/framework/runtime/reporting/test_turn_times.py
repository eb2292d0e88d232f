"""Where the time of the owner thread goes, as snapshots tell it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from ackfloor import App, Delivery
from ackfloor.core.records.record import Now
from ackfloor.runtime.reporting.turn_times import TurnTimes
from tests.framework.runtime.live import live, within

WORK_S = 0.02


def test_every_stretch_counts_once() -> None:
    """From the end of the last one, for whoever ends it."""
    times = TurnTimes(100.0)
    times.polled(101.5)
    times.worked(101.75)
    times.polled(101.75)
    times.worked(103.75)
    times.polled(104.0)
    assert (times.polled_s, times.worked_s) == (1.75, 2.25)


def test_a_snapshot_tells_polls_from_work() -> None:
    """What is done between two polls is work, and so is what a poll brings."""
    app, began_s = App("g"), time.monotonic()

    @app.handler("orders")
    async def bill(_: Delivery) -> None: ...

    with live(app) as worker:
        turns: list[int] = []

        def busy() -> None:
            turns.append(0)
            time.sleep(WORK_S)

        worker.loop.interlude = busy
        worker.send("orders", n=3)
        worker.until(worker.settled)
        done = len(turns)
        worker.until(
            lambda: worker.watcher.latest and worker.watcher.latest.worked_s >= done * WORK_S
        )
        latest = worker.watcher.latest
        assert latest is not None
        assert latest.polled_s > 0
        assert latest.polled_s + latest.worked_s <= time.monotonic() - began_s


def test_answers_that_are_taken_before_records_are_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records are handled in order they are taken within a poll."""
    app = App("g")

    @app.handler("orders", ordering="key", on_failure="park")
    async def bill(_: Delivery) -> None: ...

    with live(app) as worker:
        engine, spent_s = worker.loop.engine, 0.0
        answered = engine.answered

        def slowly(deliveries: Iterable[Delivery], now: Now) -> None:
            nonlocal spent_s
            began_s = time.monotonic()
            time.sleep(WORK_S)
            answered(deliveries, now)
            spent_s += time.monotonic() - began_s

        monkeypatch.setattr(engine, "answered", slowly)
        before_s = worker.loop._times.worked_s
        for _ in range(10):
            worker.send("orders", b"x", key=b"k")
            worker.loop.turn(0.1)
            # On a busy machine its answer may have been taken in that very turn.
            within(lambda: bool(worker.loop._inbox.answered) or worker.settled())
        worker.until(worker.settled)
        assert worker.loop._times.worked_s - before_s >= spent_s > 5 * WORK_S
