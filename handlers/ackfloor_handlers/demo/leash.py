"""A leash: a small process that ends a program when whoever started it is gone.

Run as a script (`python -I -S leash.py PROGRAM ...`) with a pipe as stdin. SIGTERM and SIGINT are
passed on; when the pipe closes, however its other end ended, the program gets SIGTERM, and SIGKILL
if it has not ended `GRACE_S` seconds later. Its exit code becomes the leash's own.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 15.0
_LOOK_EVERY_S = 0.1


def main(argv: list[str]) -> int:
    """Hold a program; returns its exit code."""
    # A session of its own: Ctrl-C in a terminal reaches the owner alone.
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)

    def pass_on(number: int, _frame: object) -> None:
        if program.poll() is None:
            program.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    kill_at_s: float | None = None
    while program.poll() is None:
        if kill_at_s is None:
            if select.select([0], [], [], _LOOK_EVERY_S)[0] and not os.read(0, 1024):
                program.terminate()
                kill_at_s = time.monotonic() + GRACE_S
        elif time.monotonic() > kill_at_s:
            program.kill()
            program.wait()
        else:
            time.sleep(_LOOK_EVERY_S)
    code = program.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
