"""Stacks: where a running handler is, in either executor, and nothing of what it knows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from ackfloor import App
from ackfloor.core.state.snapshot import RunningDelivery, Snapshot
from ackfloor.runtime.calls.stacks import MOST_FRAMES, task_stack, thread_stack
from ackfloor.runtime.reporting import snapshot_builder as report
from tests.contracts.executor_contract import Bench, eventually
from tests.contracts.test_executors_contract import AsyncBench, ThreadBench
from tests.framework.runtime.live import KINDS, Gate, live, register

SECRET = "4711-0815"


@pytest.mark.parametrize("kind", [AsyncBench, ThreadBench])
def test_a_running_handler_is_found(kind: Callable[[], Bench]) -> None:
    """The frames around it are left out; of a delivery that does not run there is nothing."""
    bench = kind()
    try:
        bench.shut(0)
        executor = bench.executor()
        running, waiting = bench.deliveries(2)
        bench.submit(executor, [running])
        eventually(lambda: executor.stack(running))
        stack = executor.stack(running)
        eventually(lambda: "_call" in (executor.stack(running) or ("",))[0])
        assert all("/ackfloor/" not in line for line in stack)
        assert executor.stack(waiting) == ()
    finally:
        bench.open()
        bench.close()  # type: ignore[attr-defined]


def test_a_handler_that_computes_is_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that holds up the event loop awaits nothing: its thread tells."""
    monkeypatch.setattr(report, "STACK_AFTER_S", 0.0)
    free: list[None] = []

    async def handle(_value: bytes) -> None:
        await busy()

    async def busy() -> None:
        secret = SECRET
        while not free and secret:
            time.sleep(0.001)  # noqa: ASYNC251 -- it holds up the event loop on purpose

    app = App(group="g")
    app.handler("orders")(handle)
    with live(app) as worker:
        worker.send("orders", SECRET.encode())
        worker.until(lambda: any("busy" in line for line in _first(worker.watcher.latest).stack))
        first = _first(worker.watcher.latest)
        assert [line.rpartition(".")[2] for line in first.stack[:2]] == ["handle", "busy"]
        assert SECRET not in repr(worker.watcher.latest)
        free.append(None)
        worker.until(worker.settled)


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_tells_how_long_is_left(kind: str) -> None:
    """And no stack before a handler has run for a second."""
    gate = Gate()
    app = App(group="g")
    register(app, kind, "orders", lambda _: iter([gate]), consume_timeout="1h")
    with live(app) as worker:
        worker.send("orders")
        worker.until(lambda: _first(worker.watcher.latest).running_s)
        first = _first(worker.watcher.latest)
        assert first.left_s is not None
        assert first.left_s + first.running_s == pytest.approx(3600.0)
        gate.open()
        worker.until(worker.settled)


def test_what_is_not_there_has_no_stack() -> None:
    """A thread that has ended, a task that has, and none at all."""
    assert thread_stack(None) == thread_stack(-1) == ()
    assert task_stack(None) == ()

    async def ended() -> asyncio.Task[None]:
        task = asyncio.create_task(asyncio.sleep(0))
        await task
        return task

    assert task_stack(asyncio.run(ended())) == ()


def test_a_deep_stack_is_told_from_its_inside() -> None:
    """The innermost frames are what somebody wants to know."""

    async def deep(levels: int) -> None:
        await (asyncio.sleep(60) if levels == 0 else deep(levels - 1))

    async def look() -> tuple[str, ...]:
        task = asyncio.create_task(deep(30))
        await asyncio.sleep(0)
        stack = task_stack(task)
        task.cancel()
        return stack

    stack = asyncio.run(look())
    assert len(stack) == MOST_FRAMES
    assert stack[-1].endswith("sleep")


def _first(snapshot: Snapshot | None) -> RunningDelivery:
    """The longest-running delivery; one that says nothing where there is none yet."""
    oldest = () if snapshot is None else snapshot.handlers[0].oldest
    return oldest[0] if oldest else RunningDelivery("", 0, 0, 0, 0.0)
