"""A process measured from outside, between the line that says it began and the one that ends it.

The process tells by lines on its standard output: `@began {"records": 1000}` and
`@ended {"records": 100000}`, with the records handled so far and whatever else it found out. So
every peer is measured in the same way, in any language and with its child processes, and start-up,
imports and warm-up are left out. After the last line the whole process group is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

#: Lines of its standard error that a failed process is quoted with.
QUOTED_LINES = 3


class RunFailed(Exception):
    """The process ended, or was ended, before it said what it had to say."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process did between its two lines.

    Attributes:
        seconds: wall clock.
        cpu_s: CPU seconds of the process and its children.
        peak_mib: the most memory each of them ever had, summed.
        records: how many it handled in between.
        told: the figures of its last line.
    """

    seconds: float
    cpu_s: float
    peak_mib: float
    records: int
    told: dict[str, float]

    @property
    def figures(self) -> dict[str, float]:
        """What is written down of a run."""
        per_record = max(1, self.records)
        return {
            "records_per_s": self.records / self.seconds,
            "cpu_s_per_million": self.cpu_s / per_record * 1e6,
            "cores": self.cpu_s / self.seconds,
            "peak_mib": self.peak_mib,
            **self.told,
        }


def measure(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float
) -> Measured:
    """Run a process to its last line.

    Raises:
        RunFailed: it ended without it, or took longer than `timeout_s`; with its last words.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = started(argv, env=env, errors=errors)
        watchdog = threading.Timer(timeout_s, end, [process])
        watchdog.start()
        late_s = time.monotonic() + timeout_s
        try:
            began = heard(process, "began")
            before = time.perf_counter(), _cpu_s(process.pid)
            ended = heard(process, "ended")
            after = time.perf_counter(), _cpu_s(process.pid)
            peak = peak_mib(process.pid)
        except (EOFError, psutil.Error):
            late = time.monotonic() >= late_s
            raise RunFailed(f"not within {timeout_s:g} s" if late else _quoted(errors)) from None
        finally:
            watchdog.cancel()
            end(process)
    told = {name: float(value) for name, value in ended.items() if name != "records"}
    return Measured(
        after[0] - before[0],
        after[1] - before[1],
        peak,
        int(ended["records"]) - int(began["records"]),
        told,
    )


def started(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, errors: IO[str] | None = None
) -> subprocess.Popen[str]:
    """A process in a group of its own, whose lines are read."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors or subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )


def heard(process: subprocess.Popen[str], word: str) -> dict[str, Any]:
    """What the process says beside a word; EOFError if it ends before."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"@{word} "):
            said: dict[str, Any] = json.loads(line[len(word) + 2 :])
            return said
    raise EOFError


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process and what it started; the watchdog may be at it already."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def share_of_a_core(pid: int, seconds: float) -> float:
    """CPU seconds per second of a process and its children, for so long."""
    before = time.perf_counter(), _cpu_s(pid)
    time.sleep(seconds)
    return (_cpu_s(pid) - before[1]) / (time.perf_counter() - before[0])


def _tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu_s(pid: int) -> float:
    spent = 0.0
    for each in _tree(pid):
        # A child that has ended since is in its parent's figure once it is reaped.
        with suppress(psutil.NoSuchProcess):
            t = each.cpu_times()
            spent += t.user + t.system + t.children_user + t.children_system
    return spent


def peak_mib(pid: int) -> float:
    """The most memory that a process and its children ever had, summed; elsewhere than on
    Linux what they have now."""
    # Not getrusage: a child inherits the peak of the process that started it.
    if sys.platform != "linux":
        return sum(each.memory_info().rss for each in _tree(pid)) / 2**20
    peaks = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{each.pid}/status").read_text("utf-8")
            peaks += next(
                (int(row.split()[1]) for row in status.splitlines() if row.startswith("VmHWM")), 0
            )
    return peaks / 1024


def _quoted(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return " / ".join(lines[-QUOTED_LINES:]) or "it ended without a word"
