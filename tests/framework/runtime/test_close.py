"""The end of a worker: ordered, bounded, and nothing lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from ackfloor import App, Delivery, Pause, RetryPolicy, SourceFailed
from ackfloor.core.messages.events import Event, RecordsAcked
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.runtime.loop import executors
from tests.framework.runtime.live import EVERY_KIND, KINDS, Gate, live, register, within

LATER = RetryPolicy.fixed("1h", 1)
EITHER = pytest.mark.parametrize("kind", KINDS)
EVERY = pytest.mark.parametrize("kind", EVERY_KIND)


@EVERY
def test_with_full_queues_running_handlers_end_and_the_rest_comes_again(kind: str) -> None:
    """Two workers in a row handle every record, and none of them twice."""
    app, handled, lock, gate = App("g"), Counter(), threading.Lock(), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        if len(handled) >= 100:
            yield gate
        with lock:
            handled[delivery.offset] += 1

    register(app, kind, "orders", script, concurrency=4)
    with live(app) as worker:
        worker.send("orders", n=1000)
        worker.until(lambda: gate.arrived == 4)
        # Of 1,000, four processes may have 128 each in hand, and not all have been read yet.
        worker.until(lambda: worker.queued() > 300)
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        assert worker.close() == 0
        opening.join()
        first = dict(handled)
        broker = worker.broker
    found = broker.committed("g", "orders")
    assert found is not None
    assert all(offset in first for offset in range(found.position))
    with live(app, broker=broker) as worker:
        worker.until(worker.settled)
    assert len(handled) == 1000
    # Also what was handled above the floor: processes end their records in no order.
    assert set(handled.values()) == {1}


@EVERY
def test_handlers_that_end_in_time_are_not_cut_short(kind: str) -> None:
    """Also the one that fails: it is parked, confirmed and committed before the worker leaves."""
    app, gate = App("g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        yield gate
        if delivery.offset == 1:
            raise ValueError("in the drain")

    register(app, kind, "orders", script, retry=LATER)
    with live(app) as worker:
        worker.send("orders", n=3)
        worker.until(lambda: gate.arrived == 3)
        opening = threading.Timer(0.1, gate.open)
        opening.start()
        assert worker.close() == 0
        opening.join()
        found = worker.broker.committed("g", "orders")
        assert found is not None
        assert found.position == 3
        assert [record.origin.offset for record in worker.parked("orders")] == [1]


def test_what_does_not_end_in_time_is_cancelled_and_may_clean_up() -> None:
    """The end takes the shutdown timeout and little more; the record spends no attempt."""
    app, attempts, cleaned = App("g"), [], []

    @app.handler("orders", concurrency=2)
    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        try:
            if len(attempts) == 1:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(delivery.offset)

    with live(app, shutdown_s=0.3) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: attempts)
        started_s = time.monotonic()
        assert worker.close() == 1
        assert 0.3 <= time.monotonic() - started_s < 30
        assert cleaned == [0]
        broker = worker.broker
    with live(app, broker=broker) as worker:
        worker.until(worker.settled)
        assert worker.parked("orders") == []
    assert attempts == [1, 1]


@EVERY
def test_a_second_signal_ends_the_drain_at_once(kind: str) -> None:
    """It does not wait for handlers, counts them, and still commits the floor."""
    app, gate = App("g"), Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        if delivery.offset:
            yield gate

    register(app, kind, "orders", script)
    with live(app, shutdown_s=60.0, commit_interval_s=60.0) as worker:
        worker.send("orders", n=3)
        worker.until(lambda: gate.arrived == 2)
        worker.until(lambda: worker.watcher.told(RecordsAcked))
        second = threading.Event()
        signal = threading.Timer(0.1, second.set)
        started_s = time.monotonic()
        signal.start()
        assert worker.close(second.is_set) == 2
        assert 0.1 <= time.monotonic() - started_s < 30
        signal.join()
        found = worker.broker.committed("g", "orders")
        gate.open()
    assert found is not None
    assert found.position == 1


@EVERY
def test_a_pause_in_the_drain_leaves_the_record_open(kind: str) -> None:
    """Nobody waits for the pause to end: the record comes again, first attempt."""
    app, gate, attempts = App("g"), Gate(), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            yield gate
            raise Pause("1h")

    register(app, kind, "orders", script)
    with live(app, shutdown_s=60.0) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: gate.arrived == 1)
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        started_s = time.monotonic()
        assert worker.close() == 0
        assert time.monotonic() - started_s < 30
        opening.join()
        broker = worker.broker
    with live(app, broker=broker) as worker:
        worker.until(lambda: len(attempts) == 2 and worker.settled())
        assert worker.parked("orders") == []
    assert attempts == [1, 1]


def test_many_stubborn_handlers_do_not_add_up_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight handlers that ignore their cancellation: the end is bounded as for one."""
    monkeypatch.setattr(executors, "CANCEL_S", 3.0)
    app, done, started = App("g"), threading.Event(), []

    async def stubborn(delivery: Delivery) -> None:
        started.append(delivery.topic)
        while not done.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    for number in range(8):
        app.handler(f"orders{number}", name=f"stubborn{number}")(stubborn)
    with live(app, shutdown_s=0.1) as worker:
        for number in range(8):
            worker.send(f"orders{number}", b"x")
        worker.until(lambda: len(started) == 8)
        started_s = time.monotonic()
        assert worker.close() == 8
        assert time.monotonic() - started_s < 15  # 24, if they added up
        done.set()


@EITHER
def test_the_last_events_are_told_and_the_last_snapshot_says_stopped(kind: str) -> None:
    """What happened in the drain itself is counted as well."""
    app, gate = App("g"), Gate()
    register(app, kind, "orders", lambda d: iter((gate,)))
    with live(app) as worker:
        worker.send("orders", n=5)
        worker.until(lambda: gate.arrived == 5)
        opening = threading.Timer(0.05, gate.open)
        opening.start()
        worker.close()
        opening.join()
        acked = sum(len(event.durations_s) for event in worker.watcher.told(RecordsAcked))
        latest = worker.watcher.latest
    assert acked == 5
    assert latest is not None
    assert (latest.state, latest.partitions, latest.open_count) == ("stopped", (), 0)


def test_observers_that_raise_hurt_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the loop, nor a rebalance, nor the end, nor other observers; it is logged once."""

    class Broken:
        def observe(self, events: Sequence[Event]) -> None:
            raise RuntimeError("observe")

        def snapshot(self, snapshot: Snapshot) -> None:
            raise LookupError("snapshot")

    app, seen = App("g"), []
    register(app, "thread", "orders", lambda d: iter(seen.append(d.offset) or ()))
    with live(app, observers=[Broken()]) as worker:
        for _ in range(3):
            worker.send("orders", n=10)
            worker.until(worker.settled)
            worker.broker.rebalance()
        worker.until(lambda: worker.worker.observers.failures > 5)
        assert worker.close() == 0
        assert worker.watcher.told(RecordsAcked)
    assert len(seen) == 30
    lines = [r.getMessage() for r in caplog.records if r.name == "ackfloor.observers"]
    assert sorted("RuntimeError" in line for line in lines) == [False, True]


def test_a_worker_that_could_not_start_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is what is raised; threads, lifespan and publisher are closed all the same."""
    app, seen = App("g"), []
    register(app, "thread", "orders", lambda d: iter(seen.append(d.offset) or ()))
    before = set(threading.enumerate())

    def refuse(*_: object) -> None:
        raise SourceFailed("unknown topics: orders")

    def untimely(*_: object) -> None:
        raise AssertionError("a source that was not opened knows no log")

    source = "ackfloor.testing.memory.memory_client.MemorySource"
    monkeypatch.setattr(f"{source}.subscribe", refuse)
    monkeypatch.setattr(f"{source}.high_watermarks", untimely)
    with pytest.raises(SourceFailed, match="unknown topics"), live(app):
        pass
    within(lambda: set(threading.enumerate()) <= before)
