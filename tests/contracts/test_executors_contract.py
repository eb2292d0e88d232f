"""The executors on the event loop and on threads keep the contract of Executor.

Those of batch handlers with batches of one: what they post is ended as the owner thread ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.ports import Executor
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.executors.thread_executor import ThreadExecutor
from tests.contracts.batch_bench import BatchBench, CallsContract
from tests.contracts.crash_contract import CrashContract
from tests.contracts.executor_contract import BOUND_S, Bench, ExecutorContract, eventually
from tests.contracts.manual_contract import ManualContract
from tests.contracts.take_back_contract import TakeBackContract
from tests.contracts.works_contract import GivenUpContract, WorksContract


class AsyncBench(Bench):
    """Async handlers on an event loop in a thread."""

    cancels = True
    stop_s = BOUND_S
    kind: type[AsyncExecutor] = AsyncExecutor

    def __init__(self) -> None:
        super().__init__()
        self.events = EventLoopThread(asyncio.new_event_loop)
        self.events.start()
        self._executors: list[Executor] = []

    async def _call(self, delivery: TrackedDelivery) -> None:
        gate = self.enter(delivery)
        while gate is not None and not gate.is_set():  # noqa: ASYNC110 -- the gate is a thread's
            await asyncio.sleep(0.001)
        self.leave(delivery)

    def executor(
        self, *, concurrency: int = 2, lanes: bool = False, manual: bool = False
    ) -> AsyncExecutor:
        executor = self.kind(
            self.invocation(self._call, manual=manual),
            self.events,
            self.inbox,
            time.monotonic,
            concurrency=concurrency,
            cancel_grace_s=BOUND_S,
            in_flight=self.in_flight,
        )
        executor.start()
        self._executors.append(executor)
        return executor

    def close(self) -> None:
        """Stop everything."""
        for executor in self._executors:
            executor.stop(BOUND_S)
        self.events.stop()
        self.area.close()


class ThreadBench(Bench):
    """Plain handlers on threads."""

    cancels = False
    kind: type[ThreadExecutor] = ThreadExecutor

    def __init__(self) -> None:
        super().__init__()
        self._executors: list[Executor] = []

    def _call(self, delivery: TrackedDelivery) -> None:
        gate = self.enter(delivery)
        if gate is not None:
            gate.wait()
        self.leave(delivery)

    def executor(
        self, *, concurrency: int = 2, lanes: bool = False, manual: bool = False
    ) -> ThreadExecutor:
        executor = self.kind(
            self.invocation(self._call, manual=manual),
            self.inbox,
            time.monotonic,
            concurrency=concurrency,
            in_flight=self.in_flight,
        )
        executor.start()
        self._executors.append(executor)
        return executor

    def close(self) -> None:
        """Let every handler end, and stop."""
        self.open()
        for executor in self._executors:
            assert executor.stop(BOUND_S) == 0
        self.area.close()


class TestAsyncExecutor(
    ExecutorContract,
    TakeBackContract,
    ManualContract,
    CrashContract,
    WorksContract,
    GivenUpContract,
):
    """AsyncExecutor keeps the contract."""

    @pytest.fixture
    def bench(self) -> Iterator[AsyncBench]:
        """Async handlers."""
        bench = AsyncBench()
        yield bench
        bench.close()

    def test_stopping_is_bounded_when_a_handler_blocks_the_loop(self, bench: AsyncBench) -> None:
        """It can't be cancelled; it is counted, and the worker's end goes on."""
        bench.shut(0)
        bench.acts = lambda _: bench.gates[0].wait()
        executor = bench.executor(concurrency=1)
        bench.submit(executor, bench.deliveries(1))
        eventually(lambda: bench.started == [0])
        assert executor.stop(0.0) == 1
        bench.open()


class TestThreadExecutor(
    ExecutorContract,
    TakeBackContract,
    ManualContract,
    CrashContract,
    WorksContract,
    GivenUpContract,
):
    """ThreadExecutor keeps the contract."""

    @pytest.fixture
    def bench(self) -> Iterator[ThreadBench]:
        """Plain handlers."""
        bench = ThreadBench()
        yield bench
        bench.close()


class AsyncBatchBench(BatchBench, AsyncBench):
    """Async handlers that take batches."""

    async def _call(self, batch: Any) -> None:
        await super()._call(batch.items[0])


class ThreadBatchBench(BatchBench, ThreadBench):
    """Plain handlers that take batches."""

    def _call(self, batch: Any) -> None:
        super()._call(batch.items[0])


class TestAsyncBatchExecutor(ExecutorContract, TakeBackContract, CrashContract, CallsContract):
    """AsyncExecutor keeps the contract, of a handler that takes batches."""

    @pytest.fixture
    def bench(self) -> Iterator[AsyncBatchBench]:
        """Async handlers."""
        bench = AsyncBatchBench()
        yield bench
        bench.close()


class TestThreadBatchExecutor(ExecutorContract, TakeBackContract, CrashContract, CallsContract):
    """ThreadExecutor keeps the contract, of a handler that takes batches."""

    @pytest.fixture
    def bench(self) -> Iterator[ThreadBatchBench]:
        """Plain handlers."""
        bench = ThreadBatchBench()
        yield bench
        bench.close()
