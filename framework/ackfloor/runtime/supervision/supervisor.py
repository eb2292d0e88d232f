"""Supervisor: starts N worker processes, restarts those that die, drains all at the end.

The supervisor never touches Kafka and never imports the user's app. It starts workers, reads their
channel, passes their reports to the one monitoring address, and restarts each that ends unasked,
whatever its exit code: with a growing backoff, or at once after `WORN_OUT`. A worker that could not
start, one whose settings the group refuses before any worker of the run has had a partition, and
one that lost its name, end the run instead. When a worker crashes, the supervisor reads
which records were in flight (`in_flight_memory`), counts them (`crashes`) and sends the counts to
all workers. It kills and replaces a worker that makes no more turns (`turn_watch`). Signals only
set flags; the loop acts on them.

First SIGTERM or SIGINT: workers drain. Second: they stop now. A worker that still runs `GRACE_S`
seconds after its shutdown timeout writes its stacks (SIGQUIT) and is killed. SIGUSR1 is passed on,
but not to a worker that is still importing: it would die. It may die of SIGTERM: it has nothing
open. SIGHUP rereads the settings, or is passed on where workers read them.
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
from ackfloor.runtime.supervision.exit_codes import NO_START, Exit
from ackfloor.runtime.supervision.in_flight_memory import Area, RecordId
from ackfloor.runtime.supervision.monitor_calls import MonitorCalls
from ackfloor.runtime.supervision.restarts import Restarts
from ackfloor.runtime.supervision.run_signals import run_signals
from ackfloor.runtime.supervision.turn_watch import TurnWatch

log = logging.getLogger("ackfloor.supervisor")

#: What a worker may need beyond its shutdown timeout: to cancel handlers, leave the group, and
#: close the lifespan and the publisher.
GRACE_S = 15.0
POLL_S = 0.1
#: Seconds a worker has to exit after the second signal.
FORCED_S = 2.0
#: Seconds in which all workers write their stacks before the kill; each gets a tenth at most.
STACK_DUMP_S = 1.0


#: Sends a frame to a worker (by number); False where its pipe is full, or it is gone.
Tell = Callable[[int, channel.Kind, bytes], bool]


class LiveSettings(Protocol):
    """The settings of a run while it runs; called on the supervisor's thread."""

    def reread(self) -> None:
        """SIGHUP arrived."""
        ...

    def started(self, worker: int, tell: Tell) -> None:
        """A worker process was started, and waits for its settings."""
        ...

    def received(self, worker: int, kind: channel.Kind, body: bytes) -> None:
        """A worker sent a frame that is neither a report nor a status."""
        ...

    def status(self, worker: int, status: str) -> None:
        """A worker is starting, running or draining."""
        ...

    def gone(self, worker: int) -> None:
        """A worker process ended."""
        ...

    def step(self, tell: Tell) -> None:
        """Do what is due; called several times a second."""
        ...


@dataclass(slots=True)
class _Worker:
    """One worker's place: the process in it changes.

    Attributes:
        area: shared memory that shows which records were in flight.
        suspects_edition: which edition of the suspects was sent to it.
        catches_signals: it has sent a frame, so its signal handlers are set.
        ran: a process in this place has reported `running`.
        status: the last status that the process sent.
        watch: how long it has made no turn.
        given_up: it was killed because it made no turn.
        blameless: the clock was the cause, not a record.
    """

    number: int
    restarts: Restarts
    process: subprocess.Popen[bytes] | None = None
    connection: Connection | None = None
    area: Area | None = None
    suspects_edition: int = 0
    started_s: float = 0.0
    restart_at_s: float | None = 0.0
    catches_signals: bool = False
    ran: bool = False
    status: str = ""
    watch: TurnWatch = field(default_factory=lambda: TurnWatch(time.monotonic()))
    given_up: bool = False
    blameless: bool = False


class Supervisor:
    """Keeps worker processes running until `request_stop`.

    Args:
        command: argv of a worker; `--number N --channel FD` is appended.
        workers: how many.
        monitor: takes the workers' reports, None for no monitoring.
        settings: sends settings to workers; None where they read them themselves.
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
        self._workers = [_Worker(number, Restarts(f"worker {number}")) for number in range(workers)]
        self._monitored = MonitorCalls(monitor)
        self._shutdown_s = shutdown_s
        self._on_status = on_status
        self._settings = settings
        self._stops = 0
        self._passed_on: list[int] = []
        self._kill_at_s: float | None = None
        self._exit = Exit.OK
        #: A worker that has ended has had a partition.
        self._assigned = False
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
        """Send a worker a frame; False where its pipe is full, or it is gone."""
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
        # Before it starts, so that it knows the suspects before it owns a partition.
        worker.suspects_edition = 0
        self._tell_suspects(worker)
        handed = {"--channel": theirs.fileno(), "--in-flight": worker.area.descriptor}
        argv = [*self._command, "--number", str(worker.number)]
        argv += [word for name, fd in handed.items() for word in (name, str(fd))]
        with theirs:
            # Its own session: Ctrl-C in a terminal reaches the supervisor alone.
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
        """Read one frame of each worker that sent any; waits `POLL_S` for the first."""
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
        """Kill a worker that makes no more turns; it is replaced when it has ended.

        It is not asked to drain: that takes turns.
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
        # No wait for its exit: the other workers need this loop.
        process.kill()

    def _tell_suspects(self, worker: _Worker) -> None:
        """Send a worker the suspects, if they changed and its pipe has room."""
        edition = self._crashes.edition
        if (
            worker.connection is not None
            and worker.suspects_edition != edition
            and self._crashes.tell(worker.connection)
        ):
            worker.suspects_edition = edition

    def _on_exit(self, worker: _Worker, code: int) -> None:
        worker.process = None
        # Its last frames have arrived and are not read yet.
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
            # Whatever its exit code: a handler may have called `os._exit`.
            self._suspect(worker, in_flight, code)
            worker.restart_at_s = time.monotonic() + self._backoff_s(worker, code)
            return
        if code in NO_START and self._hopeless(worker):
            log.error("worker %d could not start; stopping the run", worker.number)
            self._exit = Exit(code)
            self.request_stop()
            return
        if code == Exit.FENCED:
            # Restarted, it would fence the other run, and so on for ever.
            log.error("worker %d lost its name to another run; stopping this run", worker.number)
            self._exit = Exit.FAILURE
            self.request_stop()
            return
        worker.restart_at_s = time.monotonic() + self._backoff_s(worker, code)

    def _hopeless(self, worker: _Worker) -> bool:
        """Whether a worker that ended for what it was given would do so again.

        In a run that has worked, the others go on, and this one is tried again: somebody mends it.
        """
        if worker.status not in {"running", "draining"}:
            return not worker.ran
        # It began to join the group, which refused it.
        areas = [other.area for other in self._workers if other.area is not None]
        return not (self._assigned or any(area.assigned() for area in areas))

    def _records_in_flight(self, worker: _Worker) -> list[RecordId]:
        """The records that its process had in flight; none after a clean exit."""
        if worker.area is None:
            return []
        self._assigned = self._assigned or worker.area.assigned()
        in_flight = worker.area.in_flight()
        worker.area.close()
        worker.area = None
        return in_flight

    def _suspect(self, worker: _Worker, in_flight: list[RecordId], code: int) -> None:
        log.error("worker %d died while it handled %s", worker.number, named(in_flight))
        if self._crashes.died(in_flight, exit_text(code)):
            # This record won't crash it again, so the backoff starts over.
            worker.restarts.failures = 0

    def _note_exit(self, worker: _Worker, code: int) -> None:
        log.info("worker %d %s", worker.number, exit_text(code))
        unborn = code == -signal.SIGTERM and not worker.catches_signals
        if unborn or code in (Exit.OK, Exit.WORN_OUT, Exit.HELD_UP) or self._exit in NO_START:
            return
        if code == Exit.FORCED or code < 0:
            self._exit = Exit.FORCED
        elif self._exit is Exit.OK:
            self._exit = Exit.FAILURE

    @staticmethod
    def _backoff_s(worker: _Worker, code: int) -> float:
        return worker.restarts.wait_s(code, exit_text(code), time.monotonic() - worker.started_s)

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
            # Again each time: two pending SIGTERMs reach the worker as one.
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
        """Have workers write their stacks, one by one: else the lines would mix."""
        for worker in self._workers:
            process = worker.process
            if process is None or process.poll() is not None:
                continue
            log.error("worker %d did not end and is killed", worker.number)
            if worker.catches_signals:
                process.send_signal(signal.SIGQUIT)
                time.sleep(STACK_DUMP_S / max(10, len(self._workers)))
