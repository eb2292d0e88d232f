"""What stands in for threads, processes and event loops in the simulation keeps the contracts.

The contract's tests wait in real time, and strands live in that of a hub. So a hub runs here on a
thread of its own, and its time is the machine's. Whatever is asked of an executor is done there, on
a strand: a strand belongs to the thread that made it, and to stop is to wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import pytest

from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import ACKED, Failed
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.ports import Executor
from ackfloor.runtime.calls.invoke import Invocation
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.thread_executor import ThreadExecutor
from ackfloor.runtime.executors.thread_slot import Slot
from tests.contracts.batch_bench import BatchBench, CallsContract
from tests.contracts.crash_contract import CrashContract
from tests.contracts.executor_contract import BOUND_S, Bench, ExecutorContract, eventually
from tests.contracts.manual_contract import ManualContract
from tests.contracts.take_back_contract import TakeBackContract
from tests.contracts.works_contract import GivenUpContract, KilledContract, WorksContract
from tests.simulation.event_loop import SimEventLoop, SimEvents
from tests.simulation.executor import (
    Answer,
    SimProcesses,
    SimThreads,
    slot_type_of,
)
from tests.simulation.hub import Hub, Strand
from tests.simulation.life import Life

T = TypeVar("T")

#: Seconds between two looks of a handler at its gate, and of the hub at the clock.
LOOK_S = 0.001


class HubThread(threading.Thread):
    """A hub that runs in real time.

    Attributes:
        hub: it; only this thread may touch it.
        life: the process of its strands.
    """

    def __init__(self) -> None:
        super().__init__(name="hub", daemon=True)
        self.hub = Hub(1, most_events=10**9)
        self.hub.now_s = time.monotonic()
        self.life = Life(self.hub, 1, lambda: None)
        self._posted: deque[Callable[[], object]] = deque()
        self._news = threading.Event()
        self._ends = False

    def run(self) -> None:
        """Let everything happen when its time comes."""
        while not self._ends:
            self._news.wait(LOOK_S)
            self._news.clear()
            # First the clock: what is asked for now happens after what was due before.
            self.hub.run(time.monotonic())
            while self._posted:
                self._posted.popleft()()
            self.hub.run(self.hub.now_s)
        self.life.die("at the end of a test")

    def post(self, action: Callable[[], object]) -> None:
        """Have something done there, soon."""
        self._posted.append(action)
        self._news.set()

    def do(self, call: Callable[[], T]) -> T:
        """Do something on a strand there, and return what it returns."""
        if threading.current_thread() is self:
            return call()
        done: Future[T] = Future()

        def main() -> None:
            try:
                done.set_result(call())
            except BaseException as exc:  # noqa: BLE001 -- it is raised where it was asked for
                done.set_exception(exc)

        self.post(lambda: Strand(self.hub, main).start())
        return done.result(2 * BOUND_S)

    def end(self) -> None:
        """Let nothing more happen."""
        self.post(lambda: setattr(self, "_ends", True))
        self.join(BOUND_S)
        assert not self.is_alive()

    def slot_type(self) -> type[Slot]:
        """A slot on a strand there, whose deliveries are answered from any thread."""
        post, hub = self.post, self.hub

        class OutsideAnswer(Answer):
            def set(self) -> None:
                post(super().set)

        class OutsideSlot(slot_type_of(hub, self.life)):  # type: ignore[misc]
            def new_answer(self) -> threading.Event:
                return OutsideAnswer(hub)

        return OutsideSlot


class OutsideLoop(SimEventLoop):
    """The event loop there, which is woken from any thread."""

    def __init__(self, thread: HubThread) -> None:
        hub, life = thread.hub, thread.life
        super().__init__(hub, life.is_alive, life.thaws, _fail)
        self._thread = thread

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """As the loop; from elsewhere there is no handle, and nobody wants one."""
        if threading.current_thread() is self._thread:
            return super().call_soon_threadsafe(callback, *args, context=context)
        self._thread.post(lambda: self.call_soon(callback, *args, context=context))
        return None


def _fail(context: dict[str, Any]) -> None:
    # asyncio lets an exit out beside giving it to its task; the loop goes on.
    assert isinstance(context.get("exception"), SystemExit), context


class Remote:
    """An executor of that thread, for the test's own."""

    def __init__(self, executor: Executor, thread: HubThread) -> None:
        self.__dict__.update(_executor=executor, _thread=thread)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._executor, name, value)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._executor, name)
        return lambda *args, **kwargs: self._thread.do(partial(method, *args, **kwargs))


class SimBench(Bench):
    """Plain handlers on strands."""

    cancels = False
    kind: type[ThreadExecutor] = SimThreads

    def __init__(self) -> None:
        self._executors: list[Executor] = []
        self.thread = HubThread()
        self.thread.start()
        super().__init__()

    def invocation(self, call: Callable[[TrackedDelivery], Any], *, manual: bool) -> Invocation:
        return Invocation("bill", call, is_async=False, manual=manual)

    def _call(self, delivery: TrackedDelivery, /) -> None:
        gate = self.enter(delivery)
        while gate is not None and not gate.is_set():
            self.thread.hub.pause(LOOK_S)
        self.leave(delivery)

    def executor(
        self, *, concurrency: int = 2, lanes: bool = False, manual: bool = False
    ) -> Executor:
        local = self.made(concurrency, manual=manual)
        executor = cast("Executor", Remote(local, self.thread))
        executor.start()
        self._executors.append(executor)
        return executor

    def made(self, concurrency: int, *, manual: bool) -> Executor:
        """An executor that is not started."""
        hub = self.thread.hub
        outside = {"hub": hub, "slot_type": self.thread.slot_type()}
        kind: type[ThreadExecutor] = type(self.kind.__name__, (self.kind,), outside)
        return kind(
            self.invocation(self._call, manual=manual),
            self.inbox,
            lambda: hub.now_s,
            concurrency=concurrency,
            in_flight=self.in_flight,
        )

    def close(self) -> None:
        """Let every handler end, and stop."""
        self.open()
        for executor in self._executors:
            assert executor.stop(BOUND_S) == 0
        self.thread.end()
        self.area.close()


class SimBatchBench(BatchBench, SimBench):
    """Plain handlers on strands that take batches."""

    def _call(self, batch: Any, /) -> None:
        super()._call(batch.items[0])


class SimProcessBench(SimBench):
    """Handlers that can be killed."""

    cancels = True
    stop_s = 0.05
    singly = False
    kind = SimProcesses


class SimAsyncBench(SimBench):
    """Async handlers on an event loop of the simulation, on the real executor."""

    cancels = True
    stop_s = BOUND_S
    of_loop: type[AsyncExecutor] = AsyncExecutor

    def __init__(self) -> None:
        super().__init__()
        loop = OutsideLoop(self.thread)  # type: ignore[abstract]
        self.events = SimEvents(self.thread.hub, loop)

    def invocation(self, call: Callable[[TrackedDelivery], Any], *, manual: bool) -> Invocation:
        return Invocation("bill", call, is_async=True, manual=manual)

    async def _call(self, delivery: TrackedDelivery, /) -> None:  # type: ignore[override]
        gate = self.enter(delivery)
        while gate is not None and not gate.is_set():  # noqa: ASYNC110 -- the gate is a thread's
            await asyncio.sleep(LOOK_S)
        self.leave(delivery)

    def made(self, concurrency: int, *, manual: bool) -> Executor:
        return self.of_loop(
            self.invocation(self._call, manual=manual),
            self.events,
            self.inbox,
            lambda: self.thread.hub.now_s,
            concurrency=concurrency,
            cancel_grace_s=BOUND_S,
            in_flight=self.in_flight,
        )


class SimAsyncBatchBench(BatchBench, SimAsyncBench):
    """The same for handlers that take batches."""

    async def _call(self, batch: Any, /) -> None:  # type: ignore[override]
        await super()._call(batch.items[0])


def benched(kind: type[SimBench]) -> Iterator[SimBench]:
    """A bench, closed after the test."""
    bench = kind()
    yield bench
    bench.close()


class TestSimThreads(
    ExecutorContract,
    TakeBackContract,
    ManualContract,
    CrashContract,
    WorksContract,
    GivenUpContract,
):
    """SimThreads keep the contract."""

    @pytest.fixture
    def bench(self) -> Iterator[SimBench]:
        """Plain handlers."""
        yield from benched(SimBench)


class TestSimThreadBatches(ExecutorContract, TakeBackContract, CrashContract, CallsContract):
    """SimThreads keep the contract, of a handler that takes batches."""

    @pytest.fixture
    def bench(self) -> Iterator[SimBench]:
        """Batches of one."""
        yield from benched(SimBatchBench)


class TestAsyncExecutorOnSimEvents(
    ExecutorContract,
    TakeBackContract,
    ManualContract,
    CrashContract,
    WorksContract,
    GivenUpContract,
):
    """AsyncExecutor keeps the contract on an event loop of the simulation."""

    @pytest.fixture
    def bench(self) -> Iterator[SimBench]:
        """Async handlers."""
        yield from benched(SimAsyncBench)


class TestAsyncBatchExecutorOnSimEvents(
    ExecutorContract, TakeBackContract, CrashContract, CallsContract
):
    """AsyncExecutor keeps the contract there, of a handler that takes batches."""

    @pytest.fixture
    def bench(self) -> Iterator[SimBench]:
        """Batches of one."""
        yield from benched(SimAsyncBatchBench)


class TestSimProcesses(ExecutorContract, TakeBackContract, WorksContract, KilledContract):
    """SimProcesses keep the contract."""

    @pytest.fixture
    def bench(self) -> Iterator[SimBench]:
        """Handlers that can be killed."""
        yield from benched(SimProcessBench)

    def test_what_is_killed_at_its_deadline_is_answered_once(self, bench: Bench) -> None:
        """By the timeout: what its handler says on its way out is no answer."""
        bench.shut(0)
        stuck, good = bench.deliveries(2)
        rules = stuck.assignment.handler.rules
        stuck.assignment.handler.rules = replace(rules, consume_timeout_s=0.0)
        executor = bench.executor(concurrency=1)
        bench.submit(executor, [stuck, good])
        eventually(lambda: bench.started == [0])
        executor.cancel(stuck)
        eventually(lambda: 1 in bench.answered)
        assert bench.answered == [0, 1]
        assert isinstance(stuck.outcome, Failed)
        assert stuck.outcome.reason is Reason.TIMEOUT

    def test_what_has_more_time_meanwhile_is_not_killed(self, bench: Bench) -> None:
        """It was extended, or the setting has changed, since the engine asked for it."""
        bench.shut(0)
        (extended,) = bench.deliveries(1)
        executor = bench.executor(concurrency=1)
        bench.submit(executor, [extended])
        eventually(lambda: bench.started == [0])
        executor.cancel(extended)
        eventually(lambda: executor.abandoned() == 0)
        bench.open()
        eventually(lambda: bench.answered == [0])
        assert extended.outcome is ACKED
