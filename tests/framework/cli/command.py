"""The `ackfloor` command as people run it: a process of its own, with its streams and exit code."""

from __future__ import annotations

import http.client
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

#: How long anything may take on a busy machine before the test fails.
PATIENCE_S = 120.0


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of ackfloor, and with those given."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("ACKFLOOR_")
    }
    return {**inherited, "COLUMNS": "200", **given}


def ackfloor(
    *arguments: str, cwd: Path, timeout_s: float = PATIENCE_S, **given: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ackfloor.cli.main", *arguments],
        cwd=cwd,
        env=environment({"XDG_RUNTIME_DIR": str(cwd), **given}),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        check=False,
    )


def rest_of(terminal: int) -> str:
    """All that was written to a terminal that nobody has open any more."""
    said = b""
    # Linux says so in this way that there is no more.
    with suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as end:
        while more := end.read(10_000):
            said += more
    return said.decode()


class Running:
    """An `ackfloor run` in the background, and what it has logged so far."""

    def __init__(self, *arguments: str, cwd: Path, **given: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ackfloor.cli.main", "run", *arguments],
            cwd=cwd,
            # Where the run's token is: it stays behind where a run is killed.
            env=environment({"PYTHONUNBUFFERED": "1", "XDG_RUNTIME_DIR": str(cwd), **given}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            # A program that crashes may write anything; a reader that gives up would block it.
            errors="replace",
        )
        self.lines: list[str] = []
        self._arrived: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def logged(self, text: str, after: int = 0) -> str:
        """Wait for a line that contains `text`, beyond the first `after` lines."""
        until_s = time.monotonic() + PATIENCE_S
        position = after
        while True:
            for line in self.lines[position:]:
                if text in line:
                    return line
            position = max(position, len(self.lines))
            try:
                line_ = self._arrived.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                line_ = None
            if line_ is None:
                pytest.fail(f"not logged: {text!r}; logged was:\n" + "\n".join(self.lines[-40:]))
            self.lines.append(line_)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something outside, as long as the command runs; asked for ever less often."""
        until_s = time.monotonic() + PATIENCE_S
        pause_s = 0.01
        why = ""
        while True:
            try:
                if condition():
                    return
                why = ""
            except (OSError, http.client.HTTPException) as exc:
                # Who asks a run that is just ending is turned away; its log says why it ends.
                why = f" ({exc!r})"
            if time.monotonic() > until_s or self.process.poll() is not None:
                lines = "\n".join(self.drain()[-40:])
                pytest.fail(f"{what} did not happen{why}; logged was:\n{lines}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.2, 0.05)

    def drain(self) -> list[str]:
        """Take the lines that have arrived; returns all of them."""
        while not self._arrived.empty():
            line = self._arrived.get()
            if line is not None:
                self.lines.append(line)
        return self.lines

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command's own process."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.drain()
        return code

    def close(self) -> None:
        """Leave nothing behind: workers drain when their supervisor is gone."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        # A worker that has outlived it still holds the other end: closing would wait for it.
        if not self._reader.is_alive():
            self.process.stderr.close()
