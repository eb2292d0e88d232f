"""WorkerRun: one worker from its first look at Kafka to its end, wherever it runs.

`ackfloor.worker` runs it as a process of its own, `ackfloor.embedded` on a thread of a program that
does other work too. What differs between the two is told to the methods below that do nothing here.
The thread that calls `run` is the worker's owner thread.

It ends where it is asked to, and by itself where another worker has to take over: a part has
failed, too many handlers were abandoned, or the machine's clock was set back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ackfloor.core.messages.events import Event
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.errors import AckfloorError, KafkaUnreachable, NotReady
from ackfloor.launch import Launch
from ackfloor.ports import Observer, ProcessMonitor, WorkerMonitor
from ackfloor.runtime.executors.event_loop import EventLoop
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

log = logging.getLogger("ackfloor.worker")


class WorkerRun:
    """One worker's run.

    Args:
        launch: the app and its settings.
        name: the worker's name in its Kafka clients, unique on its host.
        number: the worker's number for the monitor.
        events: the event loop that async handlers run on; it is started here.
        in_flight: memory that names the records in flight.
    """

    def __init__(
        self, launch: Launch, name: str, number: int, events: EventLoop, in_flight: InFlightMemory
    ) -> None:
        self._launch = launch
        self._name = name
        self._in_flight = in_flight
        #: How often it was asked to stop: once drains, twice stops now. Any thread may count it up.
        self._stops = 0
        self._worn_out = False
        self._set_back_s = 0.0
        self._broken: BaseException | None = None
        monitoring = launch.monitoring()
        self._monitor: WorkerMonitor | None = (
            None if monitoring is None else monitoring.worker_monitor(number, launch.settings.group)
        )
        self._events = events
        self._loop: Loop | None = None

    # What differs by where it runs.

    def _status(self, status: str, waits: str = "") -> None:
        """It is starting (and waits, for this reason), running or draining."""

    def _report(self) -> None:
        """There is news for the run's monitor."""

    def _assembled(self, worker: Worker) -> None:
        """The worker is put together, and has started nothing."""

    def _before_start(self) -> None:
        """The lifespan is about to be entered."""

    def _before_turns(self, worker: Worker, loop: Loop) -> None:
        """The worker has joined the group, and makes its first turn next."""

    def _turned(self, worker: Worker) -> None:
        """The worker has made a turn."""

    def _draining(self) -> None:
        """The worker waits for what runs; called again and again."""

    # What is the same.

    def run(self) -> Exit:
        """Work until asked to stop, or until another worker has to take over.

        Raises:
            AckfloorError: it could not start, or can't go on.
        """
        self._status("starting")
        self._report()
        try:
            worker = self._worker()
        except KafkaUnreachable:
            if self._stops:
                return Exit.OK
            raise
        self._before_start()
        try:
            loop = self._start(worker)
            self._status("running")
            self._work(worker, loop)
        finally:
            self._status("draining")
            code = self._close(worker)
        return code

    def _worker(self) -> Worker:
        def waits(why: str) -> None:
            self._status("starting", why)

        launch = self._launch = self._launch.matched(lambda: self._stops > 0, waits)
        observers: list[Observer] = [*launch.app.observers]
        if self._monitor is not None:
            observers += [self._monitor, _Reporter(self)]
        topology = launch.topology(lambda: self._stops > 0, waits)
        outside = launch.outside(self._events, self._name, topology, watched=topology.partitions)
        outside.in_flight = self._in_flight
        if isinstance(self._monitor, ProcessMonitor):
            outside.process_monitor = self._monitor
        worker = Worker(
            launch.app,
            launch.handlers,
            launch.worker_config(self._name),
            topology,
            outside,
            observers,
        )
        self._assembled(worker)
        return worker

    @staticmethod
    def _start(worker: Worker) -> Loop:
        try:
            return worker.start()
        except AckfloorError:
            raise
        except BaseException as exc:
            # The lifespan is user code and may raise anything.
            log.exception("the worker could not start")
            raise NotReady(f"the worker could not start: {type(exc).__name__}: {exc}") from exc

    def _work(self, worker: Worker, loop: Loop) -> None:
        self._loop = loop
        self._before_turns(worker, loop)
        # The first poll is watched too: machines set their clocks soon after they boot.
        self._in_flight.turned()
        while not self._stops:
            loop.turn()
            self._turned(worker)
            if self._is_over(worker, loop):
                return

    def _is_over(self, worker: Worker, loop: Loop) -> bool:
        """Whether another worker has to take over."""
        if worker.inbox.broken:
            self._broken = worker.inbox.broken[0]
            log.error(
                "a part of the worker has failed: draining, to be replaced", exc_info=self._broken
            )
            return True
        if loop.executors.worn_out():
            log.error(
                "too many abandoned handlers, which run on after their consume timeout: "
                "draining, to be replaced"
            )
            self._worn_out = True
        elif self._set_back_s:
            log.warning(
                "the clock was set back by %.0f s, and the Kafka client waits by it: draining, "
                "to be replaced",
                self._set_back_s,
            )
            self._worn_out = True
        return self._worn_out

    def _clock_set_back(self, by_s: float) -> None:
        self._in_flight.set_back()
        self._set_back_s = by_s

    def _close(self, worker: Worker) -> Exit:
        """Drain and leave the group; returns how the run has ended."""
        try:
            cut_short = worker.close(self._forced)
        except BaseException:
            log.exception("the worker did not shut down cleanly")
            return Exit.FAILURE
        finally:
            self._report()
        if self._worn_out and not self._stops:
            return Exit.WORN_OUT
        if self._broken is not None and not self._stops:
            return Exit.FAILURE
        if cut_short:
            log.error(
                "%d running handlers were cut short; their records will be redelivered", cut_short
            )
            return Exit.FORCED
        return Exit.OK

    def _forced(self) -> bool:
        self._draining()
        return self._stops > 1


class _Reporter:
    """Has a run report at each snapshot."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def observe(self, events: Sequence[Event]) -> None:
        """Do nothing: the monitor counts the events."""

    def snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        """Report."""
        self._run._report()  # noqa: SLF001 -- it is a part of the run
