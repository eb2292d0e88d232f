"""Run as a script: a supervisor with workers that touch no Kafka, for tests of real processes.

    python supervised.py run '{"workers": 2, "behave": "serve", ...}'    the supervisor
    python supervised.py work BEHAVE STATE --number N --channel FD       one of its workers

The supervisor prints a JSON line for everything it learns. Workers count their incarnations in
files under STATE, so that a behaviour may differ between the first and the next.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

from ackfloor.control import Control, SettingsState
from ackfloor.core.acks.progress import Progress
from ackfloor.runtime.supervision import channel, restarts, supervisor, turn_watch
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory


def say(**fact: object) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


class Monitor:
    """A monitor that tells what it is told, and may fail."""

    def __init__(self, broken: bool) -> None:
        self._broken = broken

    def start(self, listen: str, certificate: Path | None = None, key: Path | None = None) -> str:
        return listen

    def update(self, worker: int, report: bytes) -> None:
        say(report=worker, size=len(report), tail=report[-8:].decode())
        if self._broken:
            raise LookupError("broken monitor")

    def waits(self, worker: int | None, why: str) -> None:
        """Nobody here waits for a broker."""

    def worker_gone(self, worker: int) -> None:
        say(gone=worker)
        if self._broken:
            raise LookupError("broken monitor")

    def settings(self, state: SettingsState) -> None:
        """Nothing is said about settings here."""

    def progress(self, seen: Sequence[Progress] | None) -> None:
        """Nothing is seen here."""

    def control(self, path: str, answer: Control) -> None:
        """Nothing is asked here."""

    def stop(self) -> None:
        """Nothing to stop."""


def run(plan: dict[str, object]) -> int:
    """Be the supervisor."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("GRACE_S", "FORCED_S"):
        if name in plan:
            setattr(supervisor, name, plan[name])
    for name in ("FIRST_BACKOFF_S", "HELD_UP_S"):
        if name in plan:
            setattr(restarts, name, plan[name])
    for name in ("SET_BACK_S", "STILL_S"):
        if name in plan:
            setattr(turn_watch, name, plan[name])
    command = [sys.executable, __file__, "work", str(plan["behave"]), str(plan["state"])]
    monitor = Monitor(bool(plan.get("broken_monitor")))
    boss = supervisor.Supervisor(
        command,
        int(str(plan.get("workers", 1))),
        monitor,
        shutdown_s=float(str(plan.get("shutdown_s", 100.0))),
        on_status=lambda number, status: say(worker=number, **status),
    )
    code = boss.run()
    say(exit=code)
    return code


class Worker:
    """A worker process that does as it is told."""

    def __init__(
        self,
        behave: str,
        state: Path,
        number: int,
        connection: Connection,
        in_flight: InFlightMemory,
    ) -> None:
        self.behave, self.state, self.number, self.connection = behave, state, number, connection
        self.in_flight = in_flight
        self.stops = 0
        with (state / f"lives-{number}").open("a") as lives:
            lives.write(f"{os.getpid()} {time.monotonic()}\n")
        self.life = len((state / f"lives-{number}").read_text().splitlines())

    def status(self, status: str) -> None:
        """Tell the supervisor."""
        channel.send_status(self.connection, status=status, pid=os.getpid(), life=self.life)

    def work(self) -> int:
        """Live until the behaviour says otherwise; returns the exit code."""
        if self.behave == "imports" or (self.behave == "imports-but-0" and self.number):
            time.sleep(60)
        self._catch_signals()
        self.status("starting")
        if self.behave in {"no-start", "imports-but-0", "not-ready"}:
            time.sleep(0.3)
            return 7 if self.behave == "not-ready" else 3
        threading.Thread(target=self._watch, daemon=True).start()
        self.status("running")
        name, _, argument = self.behave.partition(":")
        if name == "report":
            channel.send_report(self.connection, b"x" * int(argument) + b"not last")
            channel.send_report(self.connection, b"the last")
            return 0
        if name == "once" and self.life == 1:
            return int(argument)
        if name == "refused" and self._is_refused(argument):
            self.status("draining")
            return 3
        if name == "still" and self.life == 1:
            self._stand_still(argument)
        while not self._may_end():
            time.sleep(0.01)
        self.status("draining")
        return 6 if self.stops > 1 else int(argument if name == "serve" and argument else 0)

    def _is_refused(self, when: str) -> bool:
        """The group refuses it, at once or after it, or another worker, has had a partition."""
        assigned, other = self.state / "assigned", when == "other" and self.number > 0
        if when == "later" or other:
            self.in_flight.of("orders", 0)
            assigned.touch()
        while when == "other" and not assigned.exists():
            time.sleep(0.01)
        return self.life == 1 and not other

    def _stand_still(self, how: str) -> None:
        """Make turns and then none, with a record in flight, whatever signals say."""
        self.in_flight.cells[self.in_flight.take_place()] = self.in_flight.of("orders", 0) | 7
        for _ in range(10):
            self.in_flight.turned()
            time.sleep(0.05)
        if how == "set-back":
            self.in_flight.set_back()
        self.status("draining" if how == "draining" else "stands still")
        threading.Event().wait()

    def _may_end(self) -> bool:
        needed = {"stubborn": 99, "slow": 2}.get(self.behave, 1)
        return self.stops >= needed

    def _watch(self) -> None:
        try:
            self.connection.recv_bytes()
        except (EOFError, OSError):
            self.stops += 1

    def _catch_signals(self) -> None:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stops += 1

        def note(number: int, _frame: FrameType | None) -> None:
            self.status(signal.Signals(number).name)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGUSR1, note)
        signal.signal(signal.SIGHUP, note)
        faulthandler.register(signal.SIGQUIT)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(run(json.loads(sys.argv[2])))
    behave, state, _, number, _, descriptor, _, area = sys.argv[2:]
    in_flight = InFlightMemory(int(area))
    worker = Worker(behave, Path(state), int(number), Connection(int(descriptor)), in_flight)
    # As the real worker: the interpreter's own end would give signals their defaults back.
    os._exit(worker.work())
