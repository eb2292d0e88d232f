"""ProcessExecutor: one plain `def` handler in processes of its own.

`concurrency` long-lived processes, each handling one record or one batch at a time. What the owner
thread asks for goes to the pool (`process_pool`), whose thread starts, feeds and kills the
processes; what it needs to know at once it reads: what each process has in flight, and its
progress.

A process can be killed, unlike a thread. When a delivery's time is up its process gets
SIGKILL, and the answer is posted when the process has been seen dead. Until then the delivery is
among those that run: nothing is parked, no lane goes on, no partition is given back.

The worker's in-flight memory (runtime/supervision/in_flight_memory.py) does not hold these
records: a handler that crashes its own process can't crash the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.errors import NotReady
from ackfloor.ports import ProcessMonitor, Stack
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.process.batch_dispatch import ProcessBatchWork
from ackfloor.runtime.executors.process.process_dispatch import ProcessWork
from ackfloor.runtime.executors.process.process_pool import LEAVE_S, ProcessPool
from ackfloor.runtime.executors.process.start_arguments import Plan
from ackfloor.runtime.executors.window import Window

#: Seconds that the first process has to import the handler.
START_S = 120.0


class ProcessExecutor:
    """Runs one sync handler in processes; implements `ports.Executor`.

    Args:
        plan: what its processes need to start.
        inbox: where finished deliveries go.
        clock: monotonic seconds, on the clock that all processes of a machine share.
        concurrency: how many processes there are.
        max_records: records after which a process is replaced; None for never.
        monitor: what hears from the processes.
    """

    def __init__(
        self,
        plan: Plan,
        inbox: Inbox,
        clock: Callable[[], float],
        *,
        concurrency: int,
        max_records: int | None = None,
        monitor: ProcessMonitor | None = None,
    ) -> None:
        self._handler = plan["handler"]
        self._window = Window(self._handler, inbox)
        work_of = ProcessBatchWork if plan["batch"] else ProcessWork
        work = work_of(self._handler, self._window, inbox, clock, max_records)
        self._pool = ProcessPool(plan, work, inbox, clock, concurrency, monitor)
        self._thread = threading.Thread(
            target=self._pool.run, name=f"ackfloor:{self._handler}:pool", daemon=True
        )

    def start(self) -> None:
        """Start the processes, and wait until the first of them takes records.

        Raises:
            NotReady: it could not import the handler or enter the lifespan.
        """
        self._thread.start()
        started = self._pool.first.wait(START_S)
        trouble = self._pool.trouble or ("" if started else f"not ready within {START_S:g} s")
        if trouble:
            self.stop(0.0)
            raise NotReady(f"handler {self._handler}: its process could not start: {trouble}")

    def submit(self, units: Sequence[Unit], *, last: bool = False) -> None:
        """Start these, in this order, behind what was given before; see `ports.Executor`."""
        self._window.add(units, last=last)
        self._pool.ring()

    def take_back(self) -> None:
        """Give back what has not started; what processes have and have not begun follows."""
        self._window.give_back()
        self._pool.recall = True
        self._pool.ring()

    def running(self) -> list[TrackedDelivery]:
        """The deliveries that a process was given, begun or not, with their times as of now."""
        found: list[TrackedDelivery] = []
        leaving = False
        for host in self._pool.hosts:
            progress = host.progress
            # In this order: what was begun since counts as not begun.
            begun = progress.begun_until
            for number, handed in list(host.in_flight.items()):
                found += handed.deliveries
                if number < begun:
                    handed.note_times(progress, number)
                elif any(delivery.assignment.stopping for delivery in handed.deliveries):
                    leaving = True
        if leaving:
            # The caller has stopped the partition, and waits even for records not begun.
            self._pool.recall = True
            self._pool.ring()
        return found

    def stack(self, delivery: TrackedDelivery) -> Stack:
        """Which process runs it: only an outside tool can read that one's stack."""
        for host in self._pool.hosts:
            if any(delivery in handed.deliveries for handed in list(host.in_flight.values())):
                return (f"process {host.pid}",)
        return ()

    def queued(self) -> int:
        """Items that no process has been given."""
        return len(self._window)

    def cancel(self, delivery: TrackedDelivery) -> None:
        """Have the process that is at this delivery killed; its answer follows its death."""
        self._pool.order(partial(self._pool.kill, delivery))

    def abandoned(self) -> int:
        """Processes that were killed and have not been seen dead."""
        return sum(host.killed for host in self._pool.hosts)

    def trouble(self) -> str:
        """Why no process can be started; "" where that is not so."""
        return self._pool.trouble

    def resize(self, concurrency: int) -> None:
        """Run at most so many deliveries at once from now on."""
        self._pool.order(partial(setattr, self._pool, "count", concurrency))

    def stop(self, timeout_s: float) -> int:
        """Let what runs end; kill what has not ended in time, and release its records."""
        if not self._thread.is_alive():
            return 0
        self._pool.order(partial(self._pool.stop, timeout_s))
        self._thread.join(timeout_s + 2 * LEAVE_S)
        return len(self.running()) if self._thread.is_alive() else 0
