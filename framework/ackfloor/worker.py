"""The worker process: `python -m ackfloor.worker`, started by the supervisor.

The composition root of one process: settings, Kafka clients, monitoring and signals around a
`runtime.worker.Worker`. Signals set flags that the owner thread checks once a turn: the first
SIGTERM or SIGINT drains, the second stops now. SIGUSR1 writes every stack as soon as the owner
thread runs Python, and the ack map at its next turn. The supervisor sends SIGQUIT before it kills;
it writes the stacks whatever the owner thread is doing. A thread of its own reads the supervisor's
frames; the owner thread acts on them at its next turn. If the machine's clock is set back, the
worker drains and is replaced (`runtime.clock_watch`). When the channel closes, the supervisor is
gone: the worker drains, and exits by force if the drain takes too long.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.events import Event
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.errors import AckfloorError, KafkaUnreachable, NotReady, SettingError
from ackfloor.launch import Launch
from ackfloor.live.breaker_orders import WorkerBreakers
from ackfloor.live.frames import Answer, SettingsVersion
from ackfloor.live.lane_requests import carry_out_lane_order
from ackfloor.live.pause_orders import WorkerPauses
from ackfloor.live.retry_orders import carry_out_retry_order
from ackfloor.live.worker_orders import answer_order
from ackfloor.live.worker_settings import WorkerSettings
from ackfloor.loading import load_app
from ackfloor.ports import Observer, ProcessMonitor, WorkerMonitor
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.logging.logs import set_up_logging
from ackfloor.runtime.loop.clock import SystemClock
from ackfloor.runtime.loop.clock_watch import ClockWatch
from ackfloor.runtime.loop.garbage_collection import look_less_often
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Worker
from ackfloor.runtime.reporting.ack_map import ack_map
from ackfloor.runtime.supervision import channel
from ackfloor.runtime.supervision.channel import Kind, Mailbox
from ackfloor.runtime.supervision.crashes import suspects_in
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory
from ackfloor.runtime.supervision.standard_streams import lead_closed_streams_nowhere

log = logging.getLogger("ackfloor.worker")

#: Seconds beyond the shutdown timeout that a worker without a supervisor may take to end.
ORPHAN_S = 15.0
#: Seconds that a last log line may take to be written, and so may the stacks.
LAST_LOG_S = 1.0


class _Reporter:
    """Sends the monitor's report to the supervisor at each snapshot."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report

    def observe(self, events: Sequence[Event]) -> None:
        """Do nothing: the monitor counts the events."""

    def snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        """Send a report."""
        self._report()


class Process:
    """One worker process from its signals to its exit code.

    Args:
        launch: the app and its settings.
        number: the worker's number in the run.
        connection: the worker's end of the channel; None without a supervisor.
        mail: the supervisor's frames that have not been handled yet.
        relaunch: makes the launch anew with other settings.
        in_flight: shared memory that names the records in flight.
    """

    def __init__(
        self,
        launch: Launch,
        number: int,
        connection: Connection | None,
        mail: Mailbox,
        relaunch: Callable[[SettingsVersion], Launch],
        in_flight: InFlightMemory,
    ) -> None:
        self._launch = launch
        self._mail = mail
        self._in_flight = in_flight
        #: Kind of frame -> what handles it; called on the owner thread, between two turns.
        self._frame_handlers: dict[Kind, Callable[[bytes], None]] = {}
        self._relaunch = relaunch
        self._number = number
        self._connection = connection
        self._stops = 0
        self._dump = False
        self._worn_out = False
        self._set_back_s = 0.0
        self._broken = False
        monitoring = launch.monitoring()
        self._monitor: WorkerMonitor | None = (
            None if monitoring is None else monitoring.worker_monitor(number, launch.settings.group)
        )
        self._events = EventLoopThread()
        self._loop: Loop | None = None
        self._breakers: WorkerBreakers | None = None

    def run(self) -> int:
        """Work until asked to stop; returns the exit code."""
        self._catch_signals()
        ClockWatch(self._clock_set_back).start()
        self._status("starting")
        self._report()
        try:
            worker = self._worker()
        except KafkaUnreachable:
            if self._stops:
                return Exit.OK
            raise
        look_less_often()
        try:
            loop = self._start(worker)
            self._status("running")
            self._work(worker, loop)
        finally:
            self._status("draining")
            code = self._close(worker)
        return code

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

    def _close(self, worker: Worker) -> Exit:
        """Drain and leave the group; returns the process's exit code."""
        try:
            cut_short = worker.close(self._forced)
        except BaseException:
            log.exception("the worker did not shut down cleanly")
            return Exit.FAILURE
        finally:
            self._report()
        if self._worn_out and not self._stops:
            return Exit.WORN_OUT
        if self._broken and not self._stops:
            return Exit.FAILURE
        if cut_short:
            log.error(
                "%d running handlers were cut short; their records will be redelivered", cut_short
            )
            return Exit.FORCED
        return Exit.OK

    def _forced(self) -> bool:
        self._log_ack_map()
        return self._stops > 1

    def _worker(self) -> Worker:
        launch = self._launch
        observers: list[Observer] = [*launch.app.observers]
        if self._monitor is not None:
            observers += [self._monitor, _Reporter(self._report)]
        topology = launch.topology(
            lambda: self._stops > 0, lambda why: self._status("starting", why)
        )
        outside = launch.outside(
            self._events,
            f"worker-{self._number}",
            topology,
            watched=topology.partitions,
        )
        outside.in_flight = self._in_flight
        if isinstance(self._monitor, ProcessMonitor):
            outside.process_monitor = self._monitor
        worker = Worker(
            launch.app,
            launch.handlers,
            launch.worker_config(self._number),
            topology,
            outside,
            observers,
        )
        self._begin(worker)
        return worker

    def _begin(self, worker: Worker) -> None:
        """Handle the frames that came before this process began, before it has a partition."""
        suspects, clock = worker.engine.suspects, SystemClock()
        breakers = self._breakers = WorkerBreakers(worker.engine, self._send_if_room)
        self._frame_handlers[Kind.SUSPECTS] = lambda body: suspects.learn(suspects_in(body))
        pauses = WorkerPauses(worker.engine)
        self._frame_handlers[Kind.BREAKERS] = lambda body: self._obeyed(
            Kind.BREAKERS_TAKEN, breakers.take(body, clock.now())
        )
        self._frame_handlers[Kind.PAUSES] = lambda body: self._obeyed(
            Kind.PAUSES_TAKEN, pauses.take(body, clock.now())
        )
        for kind, body in tuple(self._mail):
            if kind is Kind.RESUME:
                # Only now: later the breaker may have closed.
                breakers.resume(body, clock.now())
            elif kind in {Kind.SUSPECTS, Kind.BREAKERS, Kind.PAUSES}:
                self._frame_handlers[kind](body)

    def _obeyed(self, kind: Kind, answer: bytes) -> None:
        """Answer an operator's orders, and publish a snapshot even if no state changed."""
        self._send(kind, answer)
        if self._loop is not None:
            self._loop.snapshots.mark_changed()

    def _work(self, worker: Worker, loop: Loop) -> None:
        self._loop = loop
        settings = WorkerSettings(self._relaunch, worker)
        self._frame_handlers[Kind.SETTINGS] = lambda body: self._answer(settings.take(body))
        self._take_orders(worker.engine)
        loop.interlude = self._between_turns
        # The first poll is watched too: machines set their clocks soon after they boot.
        self._in_flight.turned()
        while not self._stops:
            loop.turn()
            self._report_cleared(worker.engine.suspects.over)
            if self._breakers is not None:
                self._breakers.tell()
            if worker.inbox.broken:
                broken = worker.inbox.broken[0]
                log.error(
                    "a part of the worker has failed: draining, to be replaced", exc_info=broken
                )
                self._broken = True
                return
            if loop.executors.worn_out():
                log.error(
                    "too many abandoned handlers, which run on after their consume timeout: "
                    "draining, to be replaced"
                )
                self._worn_out = True
                return
            if self._set_back_s:
                log.warning(
                    "the clock was set back by %.0f s, and the Kafka client waits by it: draining, "
                    "to be replaced",
                    self._set_back_s,
                )
                self._worn_out = True
                return
            self._log_ack_map()

    def _take_orders(self, engine: Engine) -> None:
        """Carry out what operators want done to records that wait."""
        clock = SystemClock()
        self._frame_handlers[Kind.RETRY_NOW] = lambda body: self._send(
            Kind.RETRY_NOW_DONE,
            answer_order(
                body, lambda order: carry_out_retry_order(engine.promotions, order, clock.now())
            ),
        )
        self._frame_handlers[Kind.LANES] = lambda body: self._send(
            Kind.LANES_DONE,
            answer_order(
                body, lambda order: carry_out_lane_order(engine.lane_orders, order, clock.now())
            ),
        )

    def _clock_set_back(self, by_s: float) -> None:
        self._in_flight.set_back()
        self._set_back_s = by_s

    def _between_turns(self) -> None:
        """Show that the owner thread is alive, and handle the supervisor's frames."""
        self._in_flight.turned()
        while self._mail:
            kind, body = self._mail.popleft()
            if kind in self._frame_handlers:
                self._frame_handlers[kind](body)

    def _answer(self, answer: Answer) -> None:
        self._send(Kind.SETTINGS_TAKEN, answer.to_bytes())

    def _send(self, kind: Kind, body: bytes) -> None:
        if self._connection is not None:
            channel.send(self._connection, kind, body)

    def _send_if_room(self, kind: Kind, body: bytes) -> bool:
        return self._connection is not None and channel.send_if_room(self._connection, kind, body)

    def _report(self) -> None:
        if self._connection is not None and self._monitor is not None:
            channel.send_report(self._connection, self._monitor.report())

    def _report_cleared(self, over: list[tuple[str, int, int]]) -> None:
        """Tell the supervisor which records are no longer suspects, once the channel has room."""
        if over and self._send_if_room(Kind.OVER, json.dumps(over).encode()):
            over.clear()

    def _status(self, status: str, waits: str = "") -> None:
        if self._connection is not None:
            channel.send_status(self._connection, status=status, pid=os.getpid(), waits=waits)

    def orphaned(self) -> None:
        """The supervisor is gone: drain, and exit even if the drain does not end."""
        if not self._stops:
            _log_in_time(lambda: log.warning("the supervisor is gone: draining"))
        self._stops = max(self._stops, 1)
        time.sleep(self._launch.settings.app.shutdown_timeout_s + ORPHAN_S)
        _log_in_time(_log_stacks)
        os._exit(Exit.FORCED)

    def _catch_signals(self) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stops += 1

        def dump(_number: int, _frame: FrameType | None) -> None:
            _write_stacks()
            self._dump = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, dump)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _log_ack_map(self) -> None:
        if self._dump and self._loop is not None and self._loop.snapshots.latest is not None:
            self._dump = False
            log.info("ack map:\n%s", ack_map(self._loop.snapshots.latest))


def _write_stacks() -> None:
    """Not to `sys.stderr`: the app may have replaced it with something that is not a file."""
    assert sys.__stderr__ is not None, "a closed stream was replaced at the start"
    faulthandler.dump_traceback(sys.__stderr__, all_threads=True)


def _log_in_time(write: Callable[[], None]) -> None:
    """On a thread of its own: a log that blocks must not keep the process alive."""
    logging_thread = threading.Thread(target=write, name="ackfloor:last-log", daemon=True)
    logging_thread.start()
    logging_thread.join(LAST_LOG_S)


def _log_stacks() -> None:
    log.error("the worker did not end in time: writing its stacks and exiting")
    _write_stacks()


def _write_stacks_at_the_worst() -> None:
    """At a crash in native code, and at SIGQUIT even if the owner thread is stuck in native code
    and handles no signal."""
    faulthandler.enable()
    faulthandler.register(signal.SIGQUIT, all_threads=True)


def _first_settings(connection: Connection, mail: Mailbox) -> SettingsVersion:
    """Wait for the run's settings, which come before anything is imported."""
    try:
        while True:
            frame = channel.receive(connection)
            if frame is not None and frame[0] is Kind.SETTINGS:
                return SettingsVersion.from_bytes(frame[1])
            if frame is not None:
                mail.append(frame)
    except (EOFError, OSError):
        os._exit(Exit.OK)


def _watch_supervisor(connection: Connection, mail: Mailbox, running: Sequence[Process]) -> None:
    """Read frames until the channel closes, beginning before the app is imported."""
    channel.listen(connection, mail)
    if not running:
        # Still importing, perhaps for ever: nothing is open yet.
        os._exit(Exit.OK)
    running[0].orphaned()


def _parser() -> argparse.ArgumentParser:
    """The command line with which the supervisor starts a worker."""
    parser = argparse.ArgumentParser(prog="python -m ackfloor.worker")
    parser.add_argument("app", help="MODULE:APP")
    parser.add_argument("--factory", action="store_true")
    parser.add_argument("--config")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--flag", action="append", default=[], help="setting=value")
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--channel", type=int)
    parser.add_argument("--channel-settings", action="store_true")
    parser.add_argument("--in-flight", type=int)
    return parser


def _launcher(given: argparse.Namespace) -> Callable[[SettingsVersion], Launch]:
    """Import the app; returns a function that makes its launch with given settings."""
    loaded = load_app(given.app, factory=given.factory)

    def launch_with(version: SettingsVersion) -> Launch:
        return Launch.of(
            loaded,
            flags=dict(flag.split("=", 1) for flag in given.flag),
            config=given.config,
            only=given.only,
            file=version.file if given.channel_settings else None,
            above=version.above,
        )

    return launch_with


def main(argv: Sequence[str] | None = None) -> int:
    """Run one worker; returns the exit code."""
    lead_closed_streams_nowhere()
    _write_stacks_at_the_worst()
    given = _parser().parse_args(argv)
    connection = None if given.channel is None else Connection(given.channel)
    in_flight = InFlightMemory(given.in_flight)
    running: list[Process] = []
    mail: Mailbox = deque()
    version = SettingsVersion(0, {}, {})
    if connection is not None:
        if given.channel_settings:
            version = _first_settings(connection, mail)
        watch = threading.Thread(
            target=_watch_supervisor, args=(connection, mail, running), daemon=True
        )
        watch.start()
    try:
        launch_with = _launcher(given)
        launch = launch_with(version)
        app = launch.settings.app
        redaction = launch.settings.redaction.rules()
        set_up_logging(app.log_level, app.log_format, f"worker-{given.number}", redaction)
        running.append(Process(launch, given.number, connection, mail, launch_with, in_flight))
        return running[0].run()
    except AckfloorError as exc:
        log.error("%s", exc)  # noqa: TRY400 -- the message is made for people
        return exc.exit_code
    except SettingError as exc:
        log.error("%s", exc)  # noqa: TRY400 -- the message is made for people
        return Exit.START
    except BaseException:
        log.exception("the worker failed")
        return Exit.FAILURE
    finally:
        in_flight.exited_cleanly()


if __name__ == "__main__":
    code = main()
    # Abandoned handlers may still run in daemon threads: they must not delay the exit.
    for stream in (sys.stdout, sys.stderr):
        # The app may have replaced the stream, and its reader may be gone.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)
