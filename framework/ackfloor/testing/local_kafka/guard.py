"""The guard: a small process that owns a local broker's Java processes and its data folder.

It is the parent of every process it starts and reads a pipe from its owner. When the pipe closes,
however the owner ended, it kills what it started, removes the data folder and exits. A child that
the owner forked may keep the pipe open: so a changed parent counts as well. If the guard itself is
killed, Linux kills its children (PR_SET_PDEATHSIG).

It runs as a script without site-packages (`python -I -S guard.py`), so: stdlib only, and no import
of the rest of ackfloor. One JSON request a line on stdin, one JSON reply a line on stdout. No
request ever waits, so the end of the pipe is noticed at once; the owner polls.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER_PREFIX = "ackfloor-kafka-"
_WATCH_EVERY_S = 0.2
_PR_SET_PDEATHSIG = 1


class Guard:
    """State: the children by name, the data folder, and whether the owner has detached."""

    def __init__(self) -> None:
        self.data_dir = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
        self.pid = os.getpid()
        self.owner = os.getppid()
        self.detached = False
        self.ending = False
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def serve(self) -> None:
        """Answer requests until the owner is gone or sends close; then remove everything."""
        try:
            _reply({"pid": self.pid, "data_dir": self.data_dir})
            self._serve_owner()
            while self.detached and not self.ending and self._any_alive():
                select.select([], [], [], _WATCH_EVERY_S)
        finally:
            self._clean_up()

    def _serve_owner(self) -> None:
        pending = b""
        while not self.ending and not self.detached and os.getppid() == self.owner:
            if not select.select([0], [], [], _WATCH_EVERY_S)[0]:
                continue
            received = os.read(0, 65536)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                self._answer(json.loads(line))

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            reply = getattr(self, "do_" + request.pop("do"))(**request)
        # Whatever it is, the owner gets the error, and the guard goes on.
        except Exception as error:  # noqa: BLE001
            reply = {"error": f"{type(error).__name__}: {error}"}
        _reply(reply)

    def do_spawn(self, name: str, argv: list[str], log: str) -> dict[str, Any]:
        """Start a process whose output is appended to the file `log`."""
        with Path(log).open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.data_dir,
                # Unsafe beside threads; the guard has none.
                preexec_fn=self._die_with_guard if self._libc else None,  # noqa: PLW1509
            )
        self._children[name] = child
        return {"pid": child.pid}

    def do_poll(self, name: str) -> dict[str, Any]:
        """The exit code of a process, None while it runs."""
        return {"returncode": self._children[name].poll()}

    def do_signal(self, name: str, number: int) -> dict[str, Any]:
        """Send a signal; one that has ended already gets none."""
        self._children[name].send_signal(number)
        return {}

    def do_detach(self) -> dict[str, Any]:
        """From now on outlive the owner: end at SIGTERM or when every child has ended."""
        self.detached = True
        return {}

    def do_close(self) -> dict[str, Any]:
        """End now. The reply goes out after everything is gone."""
        self.ending = True
        self._clean_up()
        return {}

    def _die_with_guard(self) -> None:
        assert self._libc is not None
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self.pid:  # the guard died before the call took effect
            os._exit(1)

    def _any_alive(self) -> bool:
        codes = [child.poll() for child in self._children.values()]  # reaps them all
        return None in codes

    def _clean_up(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        shutil.rmtree(self.data_dir, ignore_errors=True)


def _reply(reply: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the owner is gone; stdin ends next
        os.write(1, json.dumps(reply).encode() + b"\n")


def main() -> None:
    """Run one guard until its owner is gone."""
    guard = Guard()

    def end(_number: int, _frame: object) -> None:
        # Only a flag: an exception here could strike between a fork and its bookkeeping.
        guard.ending = True

    signal.signal(signal.SIGTERM, end)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    guard.serve()


if __name__ == "__main__":
    main()
