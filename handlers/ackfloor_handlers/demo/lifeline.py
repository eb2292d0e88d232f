"""A leash: a small process that ends a program when the process that started it is gone.

Run as a script (`python -P lifeline.py NICE PROGRAM ...`) with a pipe as stdin. NICE is by how much
the program's priority is lower than its owner's, as `nice` counts. It passes on SIGTERM and SIGINT;
when the pipe closes, however its other end ended, it sends the program SIGTERM, another one
every `PATIENCE_S` seconds, and SIGKILL if it has not ended after `GRACE_S` seconds. It exits with
the program's code, once whatever that started in its session (a Java process that ends a little
later) is gone as well.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 15.0
PATIENCE_S = 5.0
#: Seconds that processes left in the program's session have to end by themselves.
AFTERMATH_S = 5.0
_LOOK_EVERY_S = 0.1


def main(argv: list[str]) -> int:
    """Run a program; returns its exit code."""
    lower_by, *command = argv
    os.nice(int(lower_by))
    # A session of its own: Ctrl-C in a terminal reaches the owner alone.
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def pass_on(number: int, _frame: object) -> None:
        if program.poll() is None:
            program.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    gone_at_s: float | None = None
    asked = 0
    while program.poll() is None:
        if gone_at_s is None:
            if select.select([0], [], [], _LOOK_EVERY_S)[0] and not os.read(0, 1024):
                gone_at_s = time.monotonic()
            continue
        waited_s = time.monotonic() - gone_at_s
        if waited_s > GRACE_S:
            program.kill()
        elif waited_s >= asked * PATIENCE_S:
            asked += 1
            program.terminate()
        time.sleep(_LOOK_EVERY_S)
    _clear(program.pid)
    code = program.returncode
    return code if code >= 0 else 128 - code


def _clear(group: int) -> None:
    """Wait for the end of a process group, and kill it after a while."""
    kill_at_s = time.monotonic() + AFTERMATH_S
    try:
        while time.monotonic() < kill_at_s:
            os.killpg(group, 0)
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # none is left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
