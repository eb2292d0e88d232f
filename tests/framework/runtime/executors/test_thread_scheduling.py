"""Wake-ups: how Linux wakes handler threads, and how many slots are woken for what there is."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, Delivery
from ackfloor.core.messages.events import HandlerHeld
from ackfloor.core.records.outcomes import Paused
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.thread_scheduling import wait_for_a_core
from tests.framework.runtime.live import Gate, live, register, within

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a policy of Linux")
if sys.platform == "linux":
    ORDINARY, LATER = os.SCHED_OTHER, os.SCHED_BATCH


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What a call returns in a thread of its own, whose policy ends with it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


@LINUX
def test_a_handler_thread_waits_for_a_core_and_nobody_else() -> None:
    """Not the owner thread."""
    app, seen = App("g"), []

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(os.sched_getscheduler(0))
        return iter(())

    register(app, "thread", "orders", script, concurrency=1)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
    assert seen == [LATER]
    assert os.sched_getscheduler(0) == ORDINARY


@LINUX
def test_a_policy_that_somebody_chose_stays() -> None:
    """Whoever runs a worker with `chrt --idle` means it."""

    def idle() -> int:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        wait_for_a_core()
        return os.sched_getscheduler(0)

    assert in_a_thread(idle) == os.SCHED_IDLE


@LINUX
@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler"])
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_sandbox_may_forbid_it(call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler works as it is: a thread that died of it would leave its slot empty."""
    app, asked = App("g"), []

    def forbidden(*_: object) -> None:
        asked.append(call)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, forbidden)
    register(app, "thread", "orders", lambda _: iter(()), concurrency=2)
    with live(app) as worker:
        worker.send("orders", n=4)
        worker.until(worker.settled)
    assert asked == [call, call]


def test_elsewhere_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have no such call."""
    asked: list[object] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    for call in ("sched_getscheduler", "sched_setscheduler"):
        monkeypatch.setattr(os, call, lambda *given: asked.append(given), raising=False)
    wait_for_a_core()
    assert asked == []


@pytest.mark.parametrize(("waits", "woken"), [(False, 1), (True, 16)])
def test_as_many_slots_are_woken_as_it_takes(
    waits: bool, woken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One where it can do all there is, all of them where each has to wait."""
    app, gate, wakes = App("g"), Gate(), []
    wake_one = AsyncExecutor._wake_one

    def counted(executor: AsyncExecutor) -> None:
        wakes.append(bool(executor._idle))
        wake_one(executor)

    def script(delivery: Delivery) -> Iterator[Gate]:
        return iter((gate,) if waits else ())

    register(app, "async", "orders", script, concurrency=16)
    with live(app) as worker:
        executor: Any = worker.executor()
        within(lambda: len(executor._idle) == 16)
        monkeypatch.setattr(AsyncExecutor, "_wake_one", counted)
        # All of it is there when the first is woken.
        worker.send("orders", n=16)
        worker.until(lambda: len(list(executor.running())) == 16 if waits else worker.settled())
        within(lambda: not executor._waking)
        assert wakes.count(True) == woken
        gate.open()
        worker.until(worker.settled)


def test_who_asks_too_late_for_a_pause_hides_nothing_from_the_others() -> None:
    """What waits stays in the window, and what is given back starts no more."""
    app, seen, gate = App("g"), [], Gate()

    def script(delivery: Delivery) -> Iterator[Gate]:
        seen.append(delivery.offset)
        yield gate

    register(app, "thread", "orders", script, concurrency=1)
    with live(app) as worker:
        executor: Any = worker.executor()
        worker.send("orders", n=3)
        worker.until(lambda: seen == [0])
        # Those behind it have to be with the executor.
        worker.until(executor.queued)
        waiting = executor.queued()
        late = executor._window.ready[0].again(None)
        late.closed = True
        executor._window.put_back(late, late, Paused(1.0, "too late"))
        assert executor.queued() == waiting
        gate.open()
        worker.until(worker.settled)
        assert worker.watcher.told(HandlerHeld) == []
    assert seen == [0, 1, 2]
