"""LagWatch: asks Kafka at intervals for the group's lag and dead letters, for the metrics.

A worker knows only the end of a log that its client last saw, which is not refreshed while a
partition is paused; of unassigned partitions and of dead letters it knows nothing. So the run asks
Kafka like any other client. What it can't read is not reported: an old number would look like a
new one.

It asks in a separate process. The client's administrative requests may crash their process
(librdkafka 2.16: an assertion on the count of a request's references, when a broker restarts), and
a run must not end for its metrics. A new process is started after a wait. It imports what looks
(`lag_process`), and never the program that runs here, which may have no guard against that.
"""

from __future__ import annotations

import logging
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import NamedTuple

from ackfloor.core.acks.progress import Progress
from ackfloor.runtime.supervision.crashes import exit_text

log = logging.getLogger("ackfloor.run")

Look = Callable[[], Sequence[Progress]]
#: Opens and closes what is looked with; it is sent to another process.
Looking = Callable[[], AbstractContextManager[Look]]

COMMAND = (sys.executable, "-m", "ackfloor.runtime.reporting.lag_process")
#: How long the end of a run waits for the process to be gone.
END_S = 3.0


class Unknown(NamedTuple):
    """Why a look failed, and the traceback of an unexpected error."""

    why: str
    trace: str = ""


class LagWatch:
    """Looks every so often, the first time after one such wait.

    Args:
        looking: a function that can be pickled; it is called in the process that asks Kafka.
        report: takes what was seen, or None where nothing is known; on this watch's thread.
    """

    def __init__(
        self,
        looking: Looking,
        report: Callable[[Sequence[Progress] | None], None],
        every_s: float,
    ) -> None:
        self._looking = looking
        self._report = report
        self._every_s = every_s
        #: Readable when the run ends.
        self._end, self._ending = Pipe(duplex=False)
        self._logged = ""
        self._thread = Thread(target=self._run, name="ackfloor-lag", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, whatever a look is at."""
        self._ending.close()
        self._thread.join(END_S)

    def _run(self) -> None:
        while not wait([self._end], self._every_s):
            here, there = Pipe()
            try:
                job = pickle.dumps((self._looking, self._every_s))
                self._listen(here, self._started(there), job)
            except Exception as exc:
                # Whatever it is, the next process may do better, and no metric ends a run.
                self._take(Unknown(f"{exc!r}", traceback.format_exc()))
            finally:
                there.close()
                here.close()

    @staticmethod
    def _started(there: Connection) -> subprocess.Popen[bytes]:
        descriptor = there.fileno()
        with there:
            return subprocess.Popen(
                [*COMMAND, str(descriptor)], pass_fds=(descriptor,), stdin=subprocess.DEVNULL
            )

    def _listen(self, here: Connection, process: subprocess.Popen[bytes], job: bytes) -> None:
        """Report what one process sees, until it or the run ends."""
        try:
            here.send(list(sys.path))
            here.send_bytes(job)
            while self._end not in wait([here, self._end]):
                self._take(here.recv())
        except (EOFError, OSError):
            code = _code(process)
            if code == -signal.SIGTERM:
                # A SIGTERM to all processes of a run, as it ends: nothing is wrong.
                log.debug("the process that asks Kafka for the lag was ended by SIGTERM")
                self._report(None)
            else:
                how = "has ended" if code is None else exit_text(code)
                self._take(Unknown(f"the process that asks Kafka for them {how}"))
        finally:
            process.kill()
            _code(process)

    def _take(self, seen: Sequence[Progress] | Unknown) -> None:
        if not isinstance(seen, Unknown):
            if self._logged:
                log.info("lag and dead letters are known again")
            self._logged = ""
            self._report(seen)
            return
        self._report(None)
        if seen.why != self._logged:
            # Once for each reason, until a look succeeds.
            self._logged = seen.why
            text = "lag and dead letters are not known, and not among the metrics: %s"
            log.warning(text, seen.why)
            if seen.trace:
                log.error("asking Kafka for the lag failed\n%s", seen.trace)


def _code(process: subprocess.Popen[bytes]) -> int | None:
    """Its exit code; None where it does not end."""
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        return None
