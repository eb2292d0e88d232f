"""The process that asks Kafka for the lag: `python -m`, started by `lag_watch.LagWatch`.

It gets what to look with, looks, and sends what it has seen, until the other end is gone.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from ackfloor.core.acks.progress import Progress
from ackfloor.errors import AckfloorError
from ackfloor.runtime.reporting.lag_watch import Look, Unknown


def main(argv: Sequence[str]) -> None:
    """Look until nobody listens any more."""
    # A signal to the whole group is the run's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    there = Connection(int(argv[0]))
    with suppress(EOFError, OSError):
        sys.path[:] = there.recv()
        looking, every_s = pickle.loads(there.recv_bytes())  # noqa: S301 -- sent by the run
        with looking() as look:
            while True:
                there.send(_seen(look))
                if there.poll(every_s):
                    return


def _seen(look: Look) -> Sequence[Progress] | Unknown:
    try:
        return look()
    except AckfloorError as exc:
        return Unknown(f"{exc}")
    except Exception as exc:
        return Unknown(f"{exc!r}", traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1:])
