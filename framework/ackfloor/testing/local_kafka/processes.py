"""The owner's side of the guard, and the identity of a process beyond its pid.

The system reuses a pid, but not a pid with its start time. So whatever outlives a command is
recorded, and killed, by both.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ackfloor.errors import AckfloorError
from ackfloor.testing.local_kafka import guard

_CLOSE_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.02


class GuardLost(AckfloorError):
    """The guard process ended, and with it the local broker."""


class GuardedProcesses:
    """Processes that end with this one, also when this one is killed with SIGKILL.

    Safe to use from several threads. `data_dir` is a new folder, removed at the end too.
    """

    def __init__(self) -> None:
        # Its own session: Ctrl-C reaches the owner alone, which then closes in its own order.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        self._lock = Lock()
        hello = self._receive()
        self.pid: int = hello["pid"]
        self.data_dir = Path(hello["data_dir"])

    def spawn(self, name: str, argv: Sequence[str], log: Path) -> int:
        """Start `argv` under `name` with its output appended to `log`; returns the pid."""
        pid: int = self._ask("spawn", name=name, argv=list(argv), log=str(log))["pid"]
        return pid

    def returncode(self, name: str) -> int | None:
        """The exit code of `name`, None while it runs; negative: ended by that signal."""
        code: int | None = self._ask("poll", name=name)["returncode"]
        return code

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to `name`; nothing happens where it has ended."""
        self._ask("signal", name=name, number=int(number))

    def detach(self) -> None:
        """Let the processes outlive this one; SIGTERM to `pid` ends them and removes the data."""
        self._ask("detach")
        self._hang_up()

    def close(self) -> None:
        """Kill every process and remove the data folder; both are gone when this returns."""
        try:
            self._ask("close")
        except GuardLost:
            pass
        finally:
            self._hang_up()
            self._guard.wait(_CLOSE_TIMEOUT_S)

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        request = json.dumps({"do": do, **arguments}).encode() + b"\n"
        with self._lock:
            assert self._guard.stdin is not None
            try:
                self._guard.stdin.write(request)
                self._guard.stdin.flush()
            except (OSError, ValueError):
                raise GuardLost(self._lost()) from None
            return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._guard.stdout is not None
        line = self._guard.stdout.readline()
        if not line:
            raise GuardLost(self._lost())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise GuardLost(f"the guard of the local broker could not do it: {reply['error']}")
        return reply

    def _lost(self) -> str:
        return (
            f"the guard of the local broker (pid {self._guard.pid}) has ended and took the broker "
            "with it; start a new one"
        )

    def _hang_up(self) -> None:
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        for pipe in (self._guard.stdin, self._guard.stdout):
            with contextlib.suppress(OSError):  # bytes that a dead guard never read
                pipe.close()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this machine, told apart from a later one with the same pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has `pid` now; None where there is none or it has ended."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return _started(self.pid) == self.started

    def end(self, number: signal.Signals, wait_s: float) -> bool:
        """Send a signal and wait up to `wait_s`; True when the process is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
        return self.gone_within(wait_s)

    def gone_within(self, wait_s: float) -> bool:
        """Wait up to `wait_s` for the process to end; whether it has."""
        give_up = time.monotonic() + wait_s
        while self.alive:
            if time.monotonic() >= give_up:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True


def _started(pid: int) -> str | None:
    # Linux's own file system, seen by its presence; other systems have a `ps` that tells the time.
    return _started_by_proc(pid) if Path("/proc/self/stat").exists() else _started_by_ps(pid)


def _started_by_proc(pid: int) -> str | None:
    """Clock ticks between the machine's boot and the start of the process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command's name is in brackets and may hold anything; the fields follow the last one.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _started_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    state, _, started = listed.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
