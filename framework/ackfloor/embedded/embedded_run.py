"""EmbeddedRun: one run of a worker on a thread of a program that does other work.

What a worker process does to its process is left alone: signals, logging, the garbage collector,
the exit. Nobody survives this process who could count the records that crash it, so none are noted.
"""

from __future__ import annotations

from collections.abc import Callable

from ackfloor.launch import Launch
from ackfloor.runtime.executors.callers_loop import CallersLoop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory
from ackfloor.worker_run import WorkerRun


class EmbeddedRun(WorkerRun):
    """One run; `run` is called on the thread that becomes the worker's owner thread.

    Args:
        launch: the app and its settings.
        name: the worker's name in its Kafka clients.
        events: the program's event loop.
        on_status: called with the status, and why the worker can't start yet.
        on_report: takes the monitor's reports.

    Attributes:
        ran: it has joined the group.
        assigned: it has had a partition.
    """

    def __init__(
        self,
        launch: Launch,
        name: str,
        events: CallersLoop,
        on_status: Callable[[str, str], None],
        on_report: Callable[[bytes], None],
    ) -> None:
        super().__init__(launch, name, 0, events, InFlightMemory())
        self.ran = self.assigned = False
        self._on_status = on_status
        self._on_report = on_report

    @property
    def broken(self) -> BaseException | None:
        """What ended a part of it, which is not there any more."""
        return self._broken

    def is_worn_out(self) -> bool:
        """Whether so many handlers were abandoned that only a new process helps."""
        return self._loop is not None and self._loop.executors.worn_out()

    def stop(self) -> None:
        """Drain; called a second time: stop now."""
        self._stops += 1

    def clock_set_back(self, by_s: float) -> None:
        """The machine's clock was set back by so many seconds; any thread may say it."""
        self._clock_set_back(by_s)

    def _status(self, status: str, waits: str = "") -> None:
        self.ran = self.ran or status == "running"
        self._on_status(status, waits)

    def _report(self) -> None:
        if self._monitor is not None:
            self._on_report(self._monitor.report())

    def _turned(self, worker: Worker) -> None:
        self.assigned = self.assigned or bool(worker.engine.assignments)
        # Nobody who could be told that a record is no suspect any more.
        worker.engine.suspects.over.clear()
