"""Supervisor: N worker processes, restarted when they die, ended in order.

The supervisor never touches Kafka and never imports the user's app. It starts workers, reads their
channel, passes their reports to the one monitoring address, and restarts what ends unasked,
whatever its exit code: with a growing backoff, or at once after `WORN_OUT`. A worker that could not
start, and one that lost its name, end the run instead. Of a worker that crashed it finds out which
records were in flight (`in_flight_memory`), counts (`crashes`) and tells all workers. One that
makes no turn any more is killed and replaced (`turn_watch`). Signals only set flags; the loop acts
on them.

First SIGTERM or SIGINT: workers drain. Second: they stop now. A worker that is still there
`GRACE_S` seconds after its own bound is killed, and writes its stacks before (SIGQUIT): what it was
stuck in is known then. SIGUSR1 is passed on, but not to a worker that is
still importing: it would die of it; SIGTERM it may die of: it has nothing open. SIGHUP is for
the settings, or is passed on likewise where they are not the supervisor's.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Protocol

from ackfloor.ports import RunMonitor
from ackfloor.runtime.supervision import channel
from ackfloor.runtime.supervision.crashes import Crashes, exit_text, named
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.in_flight_memory import Area, RecordId
from ackfloor.runtime.supervision.run_signals import run_signals
from ackfloor.runtime.supervision.turn_watch import TurnWatch

log = logging.getLogger("ackfloor.supervisor")

FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 30.0
#: A worker that ran this long starts its backoff afresh.
STEADY_S = 60.0
#: What a worker may need beyond its shutdown timeout: to cancel handlers, leave the group, and
#: close the lifespan and the publisher.
GRACE_S = 15.0
POLL_S = 0.1
#: Between two attempts to get a name that the group has not released.
HELD_UP_S = 3.0
#: Seconds a worker has to end after the second signal.
FORCED_S = 2.0
#: Seconds that all who are to be killed have for writing their stacks; one of few has a tenth.
STACK_DUMP_S = 1.0


#: Tells a worker (by number) something; False where it has no room for it now, or is gone.
Tell = Callable[[int, channel.Kind, bytes], bool]


class LiveSettings(Protocol):
    """The settings of a run while it runs; called on the supervisor's thread."""

    def reread(self) -> None:
        """SIGHUP came."""
        ...

    def started(self, worker: int, tell: Tell) -> None:
        """A worker process was started, and waits for its settings."""
        ...

    def received(self, worker: int, kind: channel.Kind, body: bytes) -> None:
        """A worker said something that is neither a report nor a status."""
        ...

    def status(self, worker: int, status: str) -> None:
        """A worker is starting, running or draining."""
        ...

    def gone(self, worker: int) -> None:
        """A worker process ended."""
        ...

    def step(self, tell: Tell) -> None:
        """Do what is to be done; called several times a second."""
        ...


@dataclass(slots=True)
class _Worker:
    """One worker's place: the process in it changes.

    Attributes:
        area: what the process leaves behind of the records in flight.
        suspects_edition: which edition of the suspects it has been told.
        catches_signals: it has sent a frame, so its signal handlers are set.
        ran: some process in this place has come as far as running.
        status: what the process said last that it does.
        watch: how long it has made no turn.
        given_up: it was killed because it made no turn.
        blameless: that was for what the clock did to it, not for a record.
    """

    number: int
    process: subprocess.Popen[bytes] | None = None
    connection: Connection | None = None
    area: Area | None = None
    suspects_edition: int = 0
    started_s: float = 0.0
    crashes: int = 0
    restart_at_s: float | None = 0.0
    catches_signals: bool = False
    ran: bool = False
    status: str = ""
    watch: TurnWatch = field(default_factory=lambda: TurnWatch(time.monotonic()))
    given_up: bool = False
    blameless: bool = False


class Supervisor:
    """Keeps worker processes running until it is told to stop.

    Args:
        command: argv of a worker; `--number N --channel FD` is appended.
        workers: how many.
        monitor: takes the workers' reports, None for no monitoring.
        settings: what workers are told of settings, None where they read them themselves.
        shutdown_s: how long a worker may drain, in seconds.
        on_status: called with (worker number, status dict) for each status frame.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        monitor: RunMonitor | None,
        *,
        shutdown_s: float,
        on_status: Callable[[int, dict[str, object]], None] | None = None,
        settings: LiveSettings | None = None,
    ) -> None:
        self._command = list(command)
        self._workers = [_Worker(number) for number in range(workers)]
        self._monitor = monitor
        self._shutdown_s = shutdown_s
        self._on_status = on_status
        self._settings = settings
        self._stops = 0
        self._passed_on: list[int] = []
        self._kill_at_s: float | None = None
        self._exit = Exit.OK
        self._crashes = Crashes()

    def run(self) -> int:
        """Run until stopped; returns the exit code of the whole run."""
        with run_signals(self.request_stop, self._passed_on.append):
            try:
                while self._step():
                    pass
            finally:
                self._kill_all()
        return int(self._exit)

    def request_stop(self) -> None:
        """Drain; called a second time: stop now."""
        self._stops += 1

    def pids(self) -> dict[int, int]:
        """Worker number -> process id of the workers that run."""
        return {w.number: w.process.pid for w in self._workers if w.process is not None}

    def tell(self, number: int, kind: channel.Kind, body: bytes) -> bool:
        """Tell a worker something; False where it has no room for it now, or is gone."""
        connection = self._workers[number].connection
        return connection is not None and channel.send_if_room(connection, kind, body)

    def _step(self) -> bool:
        """One round; False when nothing is left to do."""
        now_s = time.monotonic()
        self._act_on_signals(now_s)
        if not self._stops:
            for worker in self._workers:
                if worker.restart_at_s is not None and worker.restart_at_s <= now_s:
                    self._spawn(worker)
        if self._settings is not None:
            self._settings.step(self.tell)
        self._read()
        for worker in self._workers:
            self._tell_suspects(worker)
            if worker.process is not None and worker.process.poll() is not None:
                self._on_exit(worker, worker.process.returncode)
            self._watch_turns(worker, now_s)
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._dump_stacks()
            self._kill_all()
        alive = any(worker.process is not None for worker in self._workers)
        waiting = not self._stops and any(w.restart_at_s is not None for w in self._workers)
        return alive or waiting

    def _spawn(self, worker: _Worker) -> None:
        worker.connection, theirs = channel.pair()
        worker.area = Area()
        # Before it starts, so that it knows the suspects before it has a partition.
        worker.suspects_edition = 0
        self._tell_suspects(worker)
        handed = {"--channel": theirs.fileno(), "--in-flight": worker.area.descriptor}
        argv = [*self._command, "--number", str(worker.number)]
        argv += [word for name, fd in handed.items() for word in (name, str(fd))]
        with theirs:
            # A session of its own: Ctrl-C in a terminal reaches the supervisor alone.
            worker.process = subprocess.Popen(
                argv,
                pass_fds=tuple(handed.values()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        worker.started_s = time.monotonic()
        worker.restart_at_s = None
        worker.catches_signals = False
        worker.status = ""
        worker.watch = TurnWatch(worker.started_s)
        worker.given_up = worker.blameless = False
        log.info("worker %d started, pid %d", worker.number, worker.process.pid)
        if self._settings is not None:
            self._settings.started(worker.number, self.tell)

    def _read(self) -> None:
        """Take the frames that have arrived, waiting a moment for the first."""
        open_ = {w.connection: w for w in self._workers if w.connection is not None}
        if not open_:
            time.sleep(POLL_S)
            return
        for ready in wait(list(open_), timeout=POLL_S):
            assert isinstance(ready, Connection)
            self._take(open_[ready], ready)

    def _take(self, worker: _Worker, connection: Connection) -> None:
        try:
            frame = channel.receive(connection)
        except (EOFError, OSError):
            connection.close()
            worker.connection = None
            return
        worker.catches_signals = True
        if frame is None:
            return
        kind, body = frame
        if kind is channel.Kind.REPORT:
            self._monitored(lambda monitor: monitor.update(worker.number, body))
            return
        if kind is channel.Kind.OVER:
            self._crashes.over(body)
            return
        if kind is not channel.Kind.STATUS:
            if self._settings is not None:
                self._settings.received(worker.number, kind, body)
            return
        status = json.loads(body)
        worker.status = str(status.get("status"))
        if self._settings is not None:
            self._settings.status(worker.number, worker.status)
        self._monitored(lambda monitor: monitor.waits(worker.number, status.get("waits", "")))
        worker.ran = worker.ran or worker.status == "running"
        if self._on_status is not None:
            self._on_status(worker.number, status)

    def _watch_turns(self, worker: _Worker, now_s: float) -> None:
        """Kill a worker that makes no turn any more; it is replaced when it has ended.

        It is not asked to drain: whoever could do that makes turns.
        """
        process, watch = worker.process, worker.watch
        if process is None or worker.area is None or worker.given_up:
            return
        watch.look(worker.area.signs(), now_s)
        if not watch.stuck(worker.status, self._shutdown_s + GRACE_S):
            return
        log.error(
            "worker %d has made no turn for %.0f s%s; it is killed",
            worker.number,
            watch.still_s,
            ": the clock was set back" if watch.set_back else "",
        )
        worker.given_up, worker.blameless = True, watch.set_back
        if worker.catches_signals:
            process.send_signal(signal.SIGQUIT)
            time.sleep(STACK_DUMP_S / 10)
        # Nobody waits for it: there are others to see to.
        process.kill()

    def _tell_suspects(self, worker: _Worker) -> None:
        """Tell a worker of the suspects, if there is news and it has room."""
        edition = self._crashes.edition
        if (
            worker.connection is not None
            and worker.suspects_edition != edition
            and self._crashes.tell(worker.connection)
        ):
            worker.suspects_edition = edition

    def _monitored(self, tell: Callable[[RunMonitor], None]) -> None:
        """Tell the monitor something; what it raises must not end the workers."""
        if self._monitor is None:
            return
        try:
            tell(self._monitor)
        except Exception:
            log.exception("the monitor failed")

    def _on_exit(self, worker: _Worker, code: int) -> None:
        worker.process = None
        # What it said last has arrived, and nobody has read it.
        while worker.connection is not None and worker.connection.poll():
            self._take(worker, worker.connection)
        if worker.connection is not None:
            worker.connection.close()
            worker.connection = None
        if self._settings is not None:
            self._settings.gone(worker.number)
        self._monitored(lambda monitor: monitor.worker_gone(worker.number))
        in_flight = self._records_in_flight(worker)
        if self._stops:
            self._note_exit(worker, code)
            return
        if worker.blameless:
            worker.restart_at_s = time.monotonic()
            return
        if in_flight:
            # Whatever its code says: a handler may have called `os._exit`.
            self._suspect(worker, in_flight, code)
            worker.restart_at_s = time.monotonic() + self._backoff_s(worker, code)
            return
        if code == Exit.START and not worker.ran:
            log.error("worker %d could not start; stopping the run", worker.number)
            self._exit = Exit.START
            self.request_stop()
            return
        if code == Exit.FENCED:
            # Started again it would expel the other one, and so on for ever.
            log.error("worker %d lost its name to another run; stopping this run", worker.number)
            self._exit = Exit.FAILURE
            self.request_stop()
            return
        worker.restart_at_s = time.monotonic() + self._backoff_s(worker, code)

    @staticmethod
    def _records_in_flight(worker: _Worker) -> list[RecordId]:
        """The records that its process had in flight; none where it ended in order."""
        if worker.area is None:
            return []
        in_flight = worker.area.in_flight()
        worker.area.close()
        worker.area = None
        return in_flight

    def _suspect(self, worker: _Worker, in_flight: list[RecordId], code: int) -> None:
        log.error("worker %d died while it handled %s", worker.number, named(in_flight))
        if self._crashes.died(in_flight, exit_text(code)):
            # One crash less to come: what is next is not to wait for what is over.
            worker.crashes = 0

    def _note_exit(self, worker: _Worker, code: int) -> None:
        log.info("worker %d ended with code %d", worker.number, code)
        unborn = code == -signal.SIGTERM and not worker.catches_signals
        if unborn or code in (Exit.OK, Exit.WORN_OUT, Exit.HELD_UP) or self._exit is Exit.START:
            return
        if code == Exit.FORCED or code < 0:
            self._exit = Exit.FORCED
        elif self._exit is Exit.OK:
            self._exit = Exit.FAILURE

    def _backoff_s(self, worker: _Worker, code: int) -> float:
        if code == Exit.WORN_OUT:
            log.warning("worker %d asked to be replaced; restarting it now", worker.number)
            return 0.0
        if code == Exit.HELD_UP:
            log.warning("worker %d asks for its name again in %g s", worker.number, HELD_UP_S)
            return HELD_UP_S
        if time.monotonic() - worker.started_s >= STEADY_S:
            worker.crashes = 0
        wait_s = float(min(FIRST_BACKOFF_S * 2.0 ** min(worker.crashes, 10), LAST_BACKOFF_S))
        worker.crashes += 1
        log.error("worker %d %s; restarting it in %.1f s", worker.number, exit_text(code), wait_s)
        return wait_s

    def _act_on_signals(self, now_s: float) -> None:
        while self._passed_on:
            number = self._passed_on.pop(0)
            if number == signal.SIGHUP and self._settings is not None:
                self._settings.reread()
            else:
                self._signal_all(number, only_catching=True)
        if self._stops and self._kill_at_s is None:
            log.info("draining; a second signal stops now")
            self._signal_all(signal.SIGTERM)
            self._kill_at_s = now_s + self._shutdown_s + GRACE_S
        elif self._stops > 1 and self._kill_at_s is not None:
            self._kill_at_s = min(self._kill_at_s, now_s + FORCED_S)
            # Again each time: two that arrive in one moment are one to the worker.
            self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int, *, only_catching: bool = False) -> None:
        for worker in self._workers:
            process = worker.process
            if only_catching and not worker.catches_signals:
                continue
            if process is not None and process.poll() is None:
                os.kill(process.pid, number)

    def _kill_all(self) -> None:
        for worker in self._workers:
            process = worker.process
            if process is not None:
                process.kill()
                process.wait()
                self._on_exit(worker, process.returncode)

    def _dump_stacks(self) -> None:
        """Let workers write their stacks, one after the other: else they would be one tangle."""
        for worker in self._workers:
            process = worker.process
            if process is None or process.poll() is not None:
                continue
            log.error("worker %d did not end and is killed", worker.number)
            if worker.catches_signals:
                process.send_signal(signal.SIGQUIT)
                time.sleep(STACK_DUMP_S / max(10, len(self._workers)))
