"""Nursery: starts worker processes in milliseconds, by forking from one that has imported it all.

    python -m tests.e2e.nursery MODULE:APP

A line on its input starts a worker, whose pid it prints; what stands in it are further arguments of
the worker. It makes no client itself (a client does
not survive a fork), and when its input ends it kills the workers that are left.
"""

from __future__ import annotations

import os
import signal
import sys

from ackfloor import worker


def main(app: str) -> None:
    """Start a worker for each line."""
    born: list[int] = []
    for line in sys.stdin:
        born = [pid for pid in born if _there(pid)]
        pid = os.fork()
        if pid == 0:
            os._exit(worker.main([app, *line.split()]))
        born.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in filter(_there, born):
        os.kill(pid, signal.SIGKILL)


def _there(pid: int) -> bool:
    """Whether a worker has not ended; until it is asked so, nobody else can get its pid."""
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


if __name__ == "__main__":
    main(sys.argv[1])
