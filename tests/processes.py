"""What tests ask of processes that may end at any moment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest


def leave_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have coverage not trace the processes that a test starts: that takes them a third longer.

    For tests of what they do, where others cover the lines.
    """
    for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
        monkeypatch.delenv(name)


def runs(pid: int) -> bool:
    """Whether a process runs; one that is dead and not reaped does not."""
    # One look, not two: it may end between them.
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def works_in(pid: int, folder: Path) -> bool:
    """Whether a process runs that was started in a folder, and none that got its pid later.

    Threads take pids as well, so after minutes of short-lived clients they come round again.
    """
    try:
        return bool(psutil.Process(pid).cwd() == str(folder.resolve()))
    except psutil.Error:
        return False


def gone_within(pid: int, seconds: float) -> bool:
    """Whether a process ends within so many seconds."""
    until_s = time.monotonic() + seconds
    while runs(pid):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def kill(pid: int) -> None:
    """SIGKILL, where there still is somebody to take it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
