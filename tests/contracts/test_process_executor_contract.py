"""The executor in processes of their own keeps the contract of Executor.

Its handlers are puppets, whose script runs in the test's process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import pytest

from ackfloor import App
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.signature import read_signature
from ackfloor.ports import Executor
from ackfloor.runtime.executors.process.process_executor import ProcessExecutor
from ackfloor.runtime.executors.process.start_arguments import plan_of
from tests.contracts.batch_bench import BatchBench
from tests.contracts.executor_contract import (
    BOUND_S,
    WATCH_S,
    Bench,
    ExecutorContract,
    eventually,
    work_of,
)
from tests.contracts.take_back_contract import TakeBackContract
from tests.contracts.works_contract import KilledContract, WorksContract
from tests.framework.runtime import puppets

#: Each takes half a second of a core to start.
MOST_PROCESSES = 4


class ProcessBench(Bench):
    """Plain handlers in processes."""

    cancels = True
    #: The script runs beside the handler, and has no current delivery.
    single = False
    singly = False
    resizes = False
    handler: Callable[..., None] = staticmethod(puppets.puppet)
    batch: int | None = None

    def __init__(self) -> None:
        self._executors: list[ProcessExecutor] = []
        super().__init__()
        puppets.play("orders", self._play)
        puppets.enter(self._running)

    def _running(self) -> Iterator[TrackedDelivery]:
        return chain.from_iterable(executor.running() for executor in self._executors)

    def _play(self, *args: Any) -> None:
        self._call(*args)

    def _call(self, delivery: TrackedDelivery) -> None:
        gate = self.enter(delivery)
        if gate is not None:
            gate.wait()
        self.leave(delivery)

    def executor(
        self, *, concurrency: int = 2, lanes: bool = False, manual: bool = False
    ) -> Executor:
        assert not manual, "refused at registration"
        app = App("g")
        options: dict[str, Any] = {"ordering": "key"} if lanes else {}
        if self.batch is not None:
            options["batch"] = self.batch
        app.handler("orders", name="bill", executor="process", **options)(self.handler)
        (spec,) = app.handlers
        signature = read_signature(spec.function, handler=spec.name, batch=self.batch is not None)
        plan = plan_of(app, spec, signature)
        count = min(concurrency, MOST_PROCESSES)
        executor = ProcessExecutor(plan, self.inbox, time.monotonic, concurrency=count)
        self._executors.append(executor)
        executor.start()
        eventually(lambda: sum(host.ready for host in executor._pool.hosts) == count)
        return executor

    def close(self) -> None:
        """Let every handler end, and stop."""
        self.open()
        for executor in self._executors:
            assert executor.stop(BOUND_S) == 0
        puppets.leave(self._running)
        self.area.close()


class ProcessContract(ExecutorContract, TakeBackContract):
    """What is particular where handlers run in processes."""

    def test_no_more_run_than_the_concurrency(self, bench: Bench) -> None:
        """The others are queued; each end lets the next one start."""
        bench.shut(0, 1, 2)
        executor = bench.executor(concurrency=2)
        deliveries = bench.deliveries(5)
        bench.submit(executor, deliveries)
        # Handed over is not begun: what runs is told by the handlers.
        eventually(lambda: len(bench.started) == 2)
        assert (sorted(bench.started), executor.queued()) == ([0, 1], 3)
        assert set(executor.running()) == set(deliveries[:2])
        bench.open(0)
        eventually(lambda: len(bench.started) == 3)
        bench.open()
        eventually(lambda: len(bench.answered) == 5)
        assert executor.queued() == 0
        eventually(lambda: list(executor.running()) == [])

    def test_what_a_process_has_in_hand_and_has_not_begun_comes_back(self, bench: Bench) -> None:
        """In order, before or after what it was not given yet; what it is at goes on."""
        executor = bench.executor(concurrency=1)
        deliveries = bench.deliveries(400)
        # Quick ones first: from then on it has several in hand.
        bench.submit(executor, deliveries[:50])
        eventually(lambda: len(bench.answered) == 50)
        bench.shut(50)
        bench.submit(executor, deliveries[50:])
        eventually(lambda: 50 in bench.started)
        bench.take_back(executor)
        eventually(lambda: sorted(bench.returned) == list(range(51, 400)))
        assert sum(later < sooner for sooner, later in pairwise(bench.returned)) <= 1
        assert list(executor.running()) == [deliveries[50]]
        bench.open()
        eventually(lambda: 50 in bench.answered)
        time.sleep(WATCH_S)
        assert bench.started == list(range(51))
        bench.submit_again(executor)

        def all_came() -> bool:
            bench.submit_again(executor)
            return len(bench.answered) == 400

        eventually(all_came)
        assert sorted(bench.started) == list(range(400))

    def test_what_left_with_its_partition_starts_nothing(self, bench: Bench) -> None:
        """What was ended here without a death has left with its partition, and so has its lane."""
        bench.shut(0)
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(3)
        bench.submit(executor, [work_of("a", deliveries)])
        eventually(lambda: bench.started == [0])
        for delivery in deliveries:
            delivery.closed = True
        executor.cancel(deliveries[0])
        eventually(lambda: list(executor.running()) == [] and executor.abandoned() == 0)
        time.sleep(WATCH_S)
        assert (bench.started, bench.answered) == ([0], [])

    # A process takes half a second to start: none can be asked for and dismissed every millisecond.
    test_idle_slots_leave_and_work_goes_on = None  # type: ignore[assignment]
    test_a_single_record_after_a_shrink_is_handled = None  # type: ignore[assignment]
    test_lanes_keep_their_order_through_a_resize = None  # type: ignore[assignment]


class TestProcessExecutor(ProcessContract, WorksContract, KilledContract):
    """ProcessExecutor keeps the contract."""

    @pytest.fixture
    def bench(self) -> Iterator[ProcessBench]:
        """Plain handlers in processes."""
        bench = ProcessBench()
        yield bench
        bench.close()


class ProcessBatchBench(BatchBench, ProcessBench):
    """Plain handlers in processes that take batches."""

    handler = staticmethod(puppets.loose)
    batch = 1

    def _play(self, _items: object, stringed: list[Any]) -> None:
        (one,) = stringed
        self._call(puppets.found((one.topic, one.partition, one.offset)))


class TestProcessBatchExecutor(ProcessContract):
    """The same where the handler takes batches."""

    @pytest.fixture
    def bench(self) -> Iterator[ProcessBatchBench]:
        """Batches of one."""
        bench = ProcessBatchBench()
        yield bench
        bench.close()
