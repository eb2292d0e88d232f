"""WorkerThread: the thread of `App.running()`, which runs one worker after the other.

It is the owner thread of each, and does what a supervisor does for a worker process: it prepares
the topics, starts a worker that has failed again, after growing waits, and says so when that is
given up. It tells the program's event loop through two futures, and never waits for it except
inside a worker, for an async handler.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from ackfloor.core.values.setting_error import SettingError
from ackfloor.embedded.embedded_run import EmbeddedRun
from ackfloor.errors import AckfloorError, KafkaUnreachable, WorkerFailed
from ackfloor.launch import Launch
from ackfloor.ports import RunMonitor
from ackfloor.runtime.executors.callers_loop import CallersLoop
from ackfloor.runtime.loop.clock_watch import ClockWatch
from ackfloor.runtime.supervision.exit_codes import NO_START, Exit
from ackfloor.runtime.supervision.monitor_calls import MonitorCalls
from ackfloor.runtime.supervision.restarts import Restarts

log = logging.getLogger("ackfloor.supervisor")


class WorkerThread:
    """Runs the worker of one `running()` block until it is asked to stop.

    Args:
        launch: the app and its settings.
        name: the worker's name in its Kafka clients.
        loop: the program's event loop, which runs; the futures belong to it.
        monitor: takes the worker's reports; None for no monitoring.
        restarts: how often a worker that fails is started again, without a steady run between.
        connect_timeout: how long the first wait for a broker may last; None for ever.

    Attributes:
        entered: done when the program may go on, because the worker runs or waits for Kafka.
        ended: its result is the error for which the worker was given up; None where it was
            asked to stop.
    """

    def __init__(
        self,
        launch: Launch,
        name: str,
        loop: asyncio.AbstractEventLoop,
        monitor: RunMonitor | None,
        *,
        restarts: int,
        connect_timeout: timedelta | None,
    ) -> None:
        self.entered: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[BaseException | None] = loop.create_future()
        self._launch = launch
        self._name = name
        self._loop = loop
        self._monitor = monitor
        self._monitored = MonitorCalls(monitor)
        self._most_restarts = restarts
        self._connect_timeout = connect_timeout
        self._restarts = Restarts("the worker")
        #: Guards the next two; held for moments, because the event loop takes it as well.
        self._lock = threading.Lock()
        #: Set by the first stop.
        self._stopping = threading.Event()
        self._run: EmbeddedRun | None = None
        #: A worker has run, and one has had a partition.
        self._ran = self._assigned = False
        self._thread = threading.Thread(target=self._main, name="ackfloor:worker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Drain; called a second time: stop now. Never blocks."""
        with self._lock:
            self._stopping.set()
            if self._run is not None:
                self._run.stop()

    # The thread.

    def _main(self) -> None:
        error: BaseException | None = None
        watch = ClockWatch(self._clock_set_back)
        watch.start()
        try:
            self._prepare()
            with self._launch.lag_watch(self._monitor):
                while self._once():
                    pass
        except BaseException as exc:  # noqa: BLE001 -- whatever it is, the program is told
            error = exc
            log.error("the worker is given up: %s", exc)  # noqa: TRY400 -- the program has it
        finally:
            watch.stop()
            self._tell(lambda: self._end(error))

    def _prepare(self) -> None:
        try:
            self._launch.prepare_topics(
                self._connect_timeout,
                lambda why: self._waits(None, why),
                self._stopping.is_set,
            )
        except KafkaUnreachable:
            if not self._stopping.is_set():
                raise

    def _once(self) -> bool:
        """Run one worker; returns whether to run another.

        Raises:
            AckfloorError: another one would fail as well, or too many have.
        """
        run = self._new_run()
        if run is None:
            return False
        started_s = time.monotonic()
        code, error = _outcome(run)
        self._monitored(lambda monitor: monitor.worker_gone(0))
        with self._lock:
            self._run = None
        if self._stopping.is_set():
            if code not in (Exit.OK, Exit.FORCED):
                raise error or WorkerFailed("the worker did not shut down cleanly; see the log")
            return False
        self._check_hope(run, code, error)
        ran_s = time.monotonic() - started_s
        if self._restarts.is_enough(self._most_restarts, code, ran_s):
            raise WorkerFailed(
                f"the worker has failed {self._most_restarts + 1} times, at last with: "
                f"{error or 'see the log'}"
            ) from error
        how = f"has failed: {error}" if error else "has ended"
        wait_s = self._restarts.wait_s(code, how, ran_s)
        self._go_on()
        return not self._stopping.wait(wait_s)

    def _new_run(self) -> EmbeddedRun | None:
        """The next run; None where it was asked to stop."""
        events = CallersLoop(self._loop)
        run = EmbeddedRun(self._launch, self._name, events, self._on_status, self._on_report)
        with self._lock:
            if self._stopping.is_set():
                return None
            self._run = run
        return run

    def _check_hope(self, run: EmbeddedRun, code: int, error: BaseException | None) -> None:
        """Raise where another worker would fail as this one did."""
        was_running = run.ran
        self._ran = self._ran or run.ran
        self._assigned = self._assigned or run.assigned
        if run.is_worn_out():
            raise WorkerFailed(
                "too many abandoned handlers run on after their consume timeout, and only the end "
                "of this process ends them (app.max_abandoned_threads)"
            )
        if self._loop.is_closed():
            raise WorkerFailed("the event loop of running() was closed inside its block")
        refused = code in NO_START and not (self._assigned if was_running else self._ran)
        if error is not None and (refused or code == Exit.FENCED):
            raise error

    def _clock_set_back(self, by_s: float) -> None:
        with self._lock:
            if self._run is not None:
                self._run.clock_set_back(by_s)

    # What it tells the program and the monitor.

    def _on_status(self, status: str, waits: str) -> None:
        self._waits(0, waits)
        if status == "running":
            self._go_on()

    def _on_report(self, report: bytes) -> None:
        self._monitored(lambda monitor: monitor.update(0, report))

    def _waits(self, worker: int | None, why: str) -> None:
        self._monitored(lambda monitor: monitor.waits(worker, why))
        if why and self._connect_timeout is None:
            self._go_on()

    def _go_on(self) -> None:
        self._tell(self._enter)

    def _enter(self) -> None:
        if not self.entered.done():
            self.entered.set_result(None)

    def _end(self, error: BaseException | None) -> None:
        self._enter()
        if not self.ended.done():
            self.ended.set_result(error)

    def _tell(self, what: Callable[[], None]) -> None:
        # Closed: nobody waits there any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)


def _outcome(run: EmbeddedRun) -> tuple[int, BaseException | None]:
    """Run a worker; how it ended, and the error of one that failed."""
    try:
        return run.run(), run.broken
    except AckfloorError as exc:
        return exc.exit_code, exc
    except SettingError as exc:
        return Exit.START, exc
    except BaseException as exc:
        log.exception("the worker failed")
        return Exit.FAILURE, exc
