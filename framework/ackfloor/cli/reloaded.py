"""The run under `ackfloor run --reload`: `python -m ackfloor.cli.reloaded LIFELINE ARGUMENTS...`.

The same as `ackfloor run ARGUMENTS...`, but it drains and ends when the process that watches the
files is gone: the lifeline is a pipe whose other end that process holds and never writes to.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from ackfloor.cli.main import main


def _watch(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    descriptor = int(sys.argv[1])
    # Workers must not inherit it.
    os.set_inheritable(descriptor, False)
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()
    sys.argv[:] = ["ackfloor", "run", *sys.argv[2:]]
    main()
