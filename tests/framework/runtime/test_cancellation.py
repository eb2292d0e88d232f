"""Cancellation of async handlers: it reaches the right one, once, and never the next."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ackfloor import App, Delivery, RetryPolicy
from ackfloor.core.messages.events import DeliveryTimedOut, LateAnswers, StrayExit
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.event_loop import EventLoopThread
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


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_in_a_task_that_a_handler_awaits_is_the_failure_of_its_record(
    end: BaseException,
) -> None:
    """asyncio would end the loop for everybody; here it goes on, and so does the other handler."""
    app, gate, ended = App("g"), Gate(), []

    @app.handler("orders", concurrency=2, retry=SOON)
    async def handle(delivery: Delivery) -> None:
        async def leave() -> None:
            raise end

        if delivery.value == b"leaves":
            await asyncio.create_task(leave())
        await gate.passed()
        ended.append(delivery.value)

    with live(app) as worker:
        worker.send("orders", b"stays")
        worker.until(lambda: gate.arrived == 1)
        worker.send("orders", b"leaves")
        worker.until(lambda: worker.dlq("orders"))
        (dead,) = worker.dlq("orders")
        gate.open()
        worker.until(worker.settled)
        assert worker.close() == 0
    assert ended == [b"stays"]
    assert dead.error_type == type(end).__name__


def _leave_a_task() -> None:
    async def leave() -> None:
        raise SystemExit(0)

    task = asyncio.get_running_loop().create_task(leave())
    # Looked at, or asyncio complains that nobody did.
    task.add_done_callback(lambda done: done.exception())


def _leave_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 0)


def _interrupt_in_a_callback_of_a_task() -> None:
    async def nothing() -> None: ...

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    asyncio.get_running_loop().create_task(nothing()).add_done_callback(interrupt)


@pytest.mark.parametrize(
    "leave", [_leave_a_task, _leave_a_callback, _interrupt_in_a_callback_of_a_task]
)
def test_an_exit_that_no_handler_awaits_is_told_and_ends_nothing(
    leave: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It belongs to no record: those are handled, and the loop runs on."""
    app, seen = App("g"), []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        if delivery.offset == 1:
            leave()
            await asyncio.sleep(0.001)
        seen.append(delivery.offset)

    with live(app) as worker:
        worker.send("orders", n=5)
        worker.until(lambda: len(seen) == 5 and worker.settled())
        worker.until(lambda: worker.watcher.told(StrayExit))
        assert worker.parked("orders") + worker.dlq("orders") == []
        assert not worker.worker.inbox.broken
        assert worker.close() == 0
    assert len(worker.watcher.told(StrayExit)) == 1
    assert "a task or callback on the event loop raised" in caplog.text


def test_a_handler_that_stops_the_event_loop_stops_nothing() -> None:
    """`loop.stop()` is not its to call: the others' handlers run there."""
    app, seen = App("g"), []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        if delivery.offset == 1:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0.001)
        seen.append(delivery.offset)

    with live(app) as worker:
        worker.send("orders", n=5)
        worker.until(lambda: len(seen) == 5 and worker.settled())
        assert worker.close() == 0


def test_an_exit_at_the_very_end_does_not_keep_the_event_loop() -> None:
    """asyncio forgets that it was asked to stop where something exits in the same round."""
    events = EventLoopThread()
    events.start()
    events.on_stray = lambda _: None

    def exit_with_the_stop() -> None:
        events.stop_soon()
        sys.exit(0)

    events.loop.call_soon_threadsafe(exit_with_the_stop)
    within(lambda: not events._thread.is_alive())
    events.stop()
    assert events.loop.is_closed()


@pytest.mark.parametrize("end", [SystemExit(0), GeneratorExit(), ValueError()], ids=repr)
def test_what_a_handler_raises_while_a_shutdown_cancels_it_is_its_failure(
    end: BaseException,
) -> None:
    """Only a cancellation that is passed on releases the record."""
    app, gate = App("g"), Gate()

    @app.handler("orders", concurrency=2, retry=LATER)
    async def handle(delivery: Delivery) -> None:
        try:
            await gate.passed()
        finally:
            if delivery.offset == 0:
                raise end

    with live(app, shutdown_s=0.0) as worker:
        worker.send("orders", n=2)
        worker.until(lambda: gate.arrived == 2)
        worker.close()
        (parked,) = worker.parked("orders")
        committed = worker.broker.committed("g", "orders")
    assert parked.origin.offset == 0
    assert committed is not None
    assert committed.position == 1


def test_a_slot_that_is_thrown_away_handles_nothing_more() -> None:
    """A GeneratorExit that comes without the event loop is no handler's."""
    app, seen = App("g"), []

    @app.handler("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.offset)
        await asyncio.Event().wait()

    with live(app, shutdown_s=0.0) as worker:
        worker.send("orders", n=3)
        worker.until(lambda: seen == [0])
        executor = worker.executor()
        assert isinstance(executor, AsyncExecutor)
        (slot,) = executor._slots
        assert slot.task is not None
        # What the collector does with a task that nobody runs any more.
        executor._stopping = True
        coroutine = slot.task.get_coro()
        events = worker.worker._outside.events
        events.loop.call_soon_threadsafe(coroutine.close)
        within(lambda: coroutine.cr_frame is None)
    assert seen == [0]


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
