"""Cancellation of async handlers: it reaches the right one, once, and never the next."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages import DeliveryTimedOut, LateAnswers
from tests.framework.runtime.live import Gate, live, within

LATER = RetryPolicy.fixed("1h", 1)
SOON = RetryPolicy.fixed("20ms", 1)


def this_task() -> asyncio.Task[object]:
    """The task a handler runs in."""
    task = asyncio.current_task()
    assert task is not None
    return task


def test_a_timed_out_handler_is_cancelled_and_no_other() -> None:
    """The record is parked at the deadline; a handler beside it and the next in its slot go on."""
    app, gate, cancelled, ended = App("g"), Gate(), [], []

    @app.handler("orders", consume_timeout="60s", concurrency=2, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        try:
            if delivery.value == b"stuck":
                await asyncio.Event().wait()
            if delivery.value == b"beside":
                # Its deadline is later than that of the other.
                assert delivery.extend("1h")
                await gate.passed()
        except asyncio.CancelledError:
            cancelled.append(delivery.value)
            raise
        ended.append(delivery.value)

    with live(app) as worker:
        worker.send("orders", b"stuck")
        worker.send("orders", b"beside")
        worker.send("orders", b"fine", n=20)
        worker.until(lambda: gate.arrived == 1)
        worker.until(lambda: len(list(worker.executor().running())) == 2)
        worker.skip(60)
        worker.until(lambda: len(ended) == 20)
        gate.open()
        worker.until(worker.settled)
        (parked,) = worker.parked("orders")
        assert worker.watcher.told(LateAnswers) == []
    assert cancelled == [b"stuck"]
    assert ended[-1] == b"beside"
    assert (parked.value, parked.reason, parked.error_type) == (
        b"stuck",
        "timeout",
        "ConsumeTimeout",
    )


def test_clean_up_that_waits_is_let_to_end() -> None:
    """`finally` with awaits runs to its end, interrupted by nothing, within the grace."""
    app, gate, cleaned = App("g"), Gate(), []

    @app.handler("orders", consume_timeout="60s", concurrency=1, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        try:
            if delivery.value == b"stuck":
                await gate.passed()
        finally:
            await asyncio.sleep(0.2 if delivery.value == b"stuck" else 0)
            cleaned.append(delivery.value)

    with live(app, cancel_grace_s=60.0) as worker:
        worker.send("orders", b"stuck")
        worker.send("orders", b"next")
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(lambda: len(cleaned) == 2 and worker.executor().abandoned() == 0)
        timed_out = worker.watcher.told(DeliveryTimedOut)
    assert cleaned[0] == b"stuck"
    assert timed_out[0].offset == 0


def test_a_handler_that_swallows_its_cancellation_is_abandoned_after_the_grace() -> None:
    """Its slot goes to a new one; its late answer is counted and changes nothing."""
    app, gate, ended = App("g"), Gate(), []

    @app.handler("orders", consume_timeout="60s", concurrency=1, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        if delivery.value == b"stubborn":
            while True:
                with suppress(asyncio.CancelledError):
                    await gate.passed()
                    break
        ended.append(delivery.value)

    with live(app, cancel_grace_s=0.1) as worker:
        worker.send("orders", b"stubborn")
        worker.send("orders", b"next")
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(lambda: ended == [b"next"])
        assert worker.executor().abandoned() == 1
        gate.open()
        worker.until(lambda: worker.watcher.told(LateAnswers))
        within(lambda: worker.executor().abandoned() == 0)
        assert len(worker.parked("orders")) == 1
    assert ended == [b"next", b"stubborn"]


def test_a_handler_that_returns_when_cancelled_keeps_its_slot() -> None:
    """Within the grace nothing is abandoned, and the slot's next record isn't cancelled."""
    app, gate, ended = App("g"), Gate(), []

    @app.handler("orders", consume_timeout="60s", concurrency=1, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        if delivery.value == b"stuck":
            with suppress(asyncio.CancelledError):
                await gate.passed()
            return
        await asyncio.sleep(0.01)
        ended.append(this_task().cancelling())

    with live(app, cancel_grace_s=0.5) as worker:
        worker.send("orders", b"stuck")
        worker.send("orders", b"fine", n=5)
        worker.until(lambda: gate.arrived == 1)
        worker.skip(60)
        worker.until(lambda: len(ended) == 5)
        worker.turn_for(0.6)
        assert worker.executor().abandoned() == 0
        assert len(worker.watcher.told(DeliveryTimedOut)) == 1
    assert ended == [0] * 5


def test_a_handler_that_cancels_its_own_task_has_failed() -> None:
    """The CancelledError of its own making is retried like any error, not taken for a shutdown."""
    app, attempts = App("g"), []

    @app.handler("orders", retry=SOON)
    async def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        this_task().cancel()
        await asyncio.sleep(0)

    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
    assert attempts == [1, 2]
    assert dead.error_type.endswith("CancelledError")


def test_a_cancellation_that_outlives_its_handler_hits_nobody() -> None:
    """Cancelling one's own task and returning at once is no error, and costs no slot."""
    app, seen = App("g"), []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        if delivery.value == b"odd":
            this_task().cancel()
        else:
            await asyncio.sleep(0)
        seen.append(delivery.value)

    with live(app) as worker:
        for value in (b"odd", b"a", b"odd", b"odd", b"b"):
            worker.send("orders", value)
            before = len(seen)
            worker.until(lambda before=before: len(seen) == before + 1 and worker.settled())
        assert worker.parked("orders") == []
    assert seen == [b"odd", b"a", b"odd", b"odd", b"b"]


def test_a_cancellation_from_outside_after_the_end_hits_nobody() -> None:
    """A task that was kept and is cancelled later is a slot's: it sleeps on, and still wakes."""
    app, tasks, seen = App("g"), [], []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        tasks.append((asyncio.get_running_loop(), this_task()))
        seen.append(delivery.value)

    with live(app) as worker:
        for number in range(5):
            worker.send("orders", b"x")
            worker.until(lambda number=number: len(seen) == number + 1 and worker.settled())
            loop, task = tasks[-1]
            loop.call_soon_threadsafe(task.cancel)
        worker.send("orders", b"x")
        worker.until(lambda: len(seen) == 6 and worker.settled())
    assert len({task for _, task in tasks}) == 1


def test_system_exit_in_a_task_of_the_handler_drains_and_the_event_loop_goes_on() -> None:
    """asyncio would end the loop for everybody; here other handlers still end in order."""
    app, gate, ended = App("g"), Gate(), []

    @app.handler("orders", concurrency=2)
    async def handle(delivery: Delivery) -> None:
        async def leave() -> None:
            raise SystemExit(3)

        if delivery.value == b"leaves":
            await asyncio.create_task(leave())
        await gate.passed()
        ended.append(delivery.value)

    with live(app) as worker:
        worker.send("orders", b"stays")
        worker.until(lambda: gate.arrived == 1)
        worker.send("orders", b"leaves")
        worker.until(lambda: worker.worker.inbox.fatal)
        gate.open()
        assert worker.close() == 0
    assert ended == [b"stays"]


def test_a_blocked_event_loop_is_named_and_the_end_is_bounded() -> None:
    """An async handler that never awaits stops its like; readiness says so, and close returns."""
    app, gate = App("g"), threading.Event()

    @app.handler("orders", concurrency=1)
    async def handle(_: Delivery) -> None:
        gate.wait(60)

    with live(app, shutdown_s=0.1) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: list(worker.executor().running()))
        events = worker.worker._outside.events
        events._beat_s -= 60
        worker.until(
            lambda: (
                worker.watcher.latest
                and any(fault.kind == "event_loop" for fault in worker.watcher.latest.faults)
            )
        )
        started_s = time.monotonic()
        assert worker.close() == 1
        assert time.monotonic() - started_s < 30
        gate.set()
        within(lambda: not events._thread.is_alive())


def test_cancellations_at_the_very_deadline_reach_only_their_own() -> None:
    """Handlers that take about as long as they may: what was not late is never cancelled."""
    app, cancelled = App("g"), []

    @app.handler("orders", consume_timeout="20ms", concurrency=16, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        try:
            await asyncio.sleep(0.018 if delivery.offset % 2 else 0.022)
        except asyncio.CancelledError:
            cancelled.append(time.monotonic() - delivery.started_s)
            raise

    with live(app) as worker:
        worker.send("orders", n=600)
        worker.until(worker.settled)
        parked = worker.parked("orders")
    assert all(after_s >= 0.02 for after_s in cancelled)
    assert len(parked) >= len(cancelled) > 0
