"""The worker process: `python -m ackfloor.worker`, started by the supervisor.

The composition root of one process: settings, Kafka clients, monitoring and signals around a
`runtime.worker.Worker`. Signals set flags that the owner thread looks at once a turn: the first
SIGTERM or SIGINT drains, the second stops now, SIGUSR1 logs every stack and the ack map. The end
of the channel means that the supervisor is gone, and drains as well.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import FrameType

from ackfloor.cli.loading import load_app
from ackfloor.core.messages import Event
from ackfloor.core.snapshot import Snapshot
from ackfloor.errors import AckfloorError, SettingError
from ackfloor.launch import Launch
from ackfloor.ports import Observer, WorkerMonitor
from ackfloor.runtime import channel
from ackfloor.runtime.ack_map import ack_map
from ackfloor.runtime.event_loop import EventLoopThread
from ackfloor.runtime.exit_codes import Exit
from ackfloor.runtime.logs import set_up_logging
from ackfloor.runtime.loop import Loop
from ackfloor.runtime.worker import Worker

log = logging.getLogger("ackfloor.worker")


class _Reporter:
    """Sends the monitor's findings to the supervisor whenever there is a fresh snapshot."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report

    def observe(self, events: Sequence[Event]) -> None:
        """Nothing to do: the monitor counts."""

    def snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        """A snapshot is out: report it."""
        self._report()


class Process:
    """One worker process from its signals to its exit code."""

    def __init__(self, launch: Launch, number: int, connection: Connection | None) -> None:
        self._launch = launch
        self._number = number
        self._connection = connection
        self._stops = 0
        self._dump = False
        self._worn_out = False
        monitoring = launch.monitoring()
        self._monitor: WorkerMonitor | None = (
            None if monitoring is None else monitoring.worker_monitor(number, launch.settings.group)
        )
        self._events = EventLoopThread()

    def run(self) -> int:
        """Work until told to stop; returns the exit code."""
        self._catch_signals()
        if self._connection is not None:
            threading.Thread(target=self._watch_supervisor, daemon=True).start()
        self._status("starting")
        self._report()
        worker = self._worker()
        try:
            loop = worker.start()
            self._status("running")
            self._work(worker, loop)
        finally:
            self._status("draining")
            cut_short = worker.close(lambda: self._stops > 1)
            self._report()
        if cut_short:
            log.error("%d running handlers were cut short; their records come again", cut_short)
            return Exit.FORCED
        return Exit.WORN_OUT if self._worn_out else Exit.OK

    def _worker(self) -> Worker:
        launch = self._launch
        observers: list[Observer] = [*launch.app.observers]
        if self._monitor is not None:
            observers += [self._monitor, _Reporter(self._report)]
        return Worker(
            launch.app,
            launch.handlers,
            launch.worker_config(),
            launch.topology(),
            launch.outside(self._events, f"worker-{self._number}"),
            observers,
        )

    def _work(self, worker: Worker, loop: Loop) -> None:
        while not self._stops:
            loop.turn()
            if worker.inbox.fatal:
                log.warning("a handler raised %r: draining", worker.inbox.fatal[0])
                return
            if loop.executors.worn_out():
                log.error("too many abandoned handlers: draining, to be replaced")
                self._worn_out = True
                return
            if self._dump:
                self._dump = False
                self._log_state(loop)

    def _report(self) -> None:
        if self._connection is not None and self._monitor is not None:
            channel.send(self._connection, channel.Kind.REPORT, self._monitor.report())

    def _status(self, status: str) -> None:
        if self._connection is not None:
            channel.send_status(self._connection, status=status, pid=os.getpid())

    def _watch_supervisor(self) -> None:
        """Block until the supervisor's end of the channel is gone."""
        assert self._connection is not None
        try:
            self._connection.recv_bytes()
        except (EOFError, OSError):
            if not self._stops:
                log.warning("the supervisor is gone: draining")
            self._stops = max(self._stops, 1)

    def _catch_signals(self) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stops += 1

        def dump(_number: int, _frame: FrameType | None) -> None:
            self._dump = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, dump)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    @staticmethod
    def _log_state(loop: Loop) -> None:
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        if loop.latest is not None:
            log.info("ack map:\n%s", ack_map(loop.latest))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ackfloor.worker")
    parser.add_argument("app", help="MODULE:APP")
    parser.add_argument("--factory", action="store_true")
    parser.add_argument("--config")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--flag", action="append", default=[], help="setting=value")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--channel", type=int)
    given = parser.parse_args(argv)
    connection = None if given.channel is None else Connection(given.channel)
    set_up_logging("info", "text", f"worker-{given.number}")
    try:
        launch = Launch.of(
            load_app(given.app, factory=given.factory),
            flags=dict(flag.split("=", 1) for flag in given.flag),
            config=given.config,
            only=given.only,
        )
        app = launch.settings.app
        set_up_logging(app.log_level, app.log_format, f"worker-{given.number}")
        return Process(launch, given.number, connection).run()
    except SettingError as exc:
        log.error("%s", exc)  # noqa: TRY400 -- the message is made for people
        return Exit.START
    except AckfloorError as exc:
        log.error("%s", exc)  # noqa: TRY400 -- the message is made for people
        return exc.exit_code


if __name__ == "__main__":
    code = main()
    # Abandoned handlers may still run in daemon threads: they must not delay the end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
