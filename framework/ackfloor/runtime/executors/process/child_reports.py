"""ChildReports: a handler's process tells its worker's monitor of itself, about once a second."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable

from ackfloor.runtime.executors.process.child_calls import Child

log = logging.getLogger("ackfloor.process")

#: Seconds between two reports.
EVERY_S = 1.0
#: Seconds that a report which is being made at the end may take.
LAST_S = 1.0


class ChildReports:
    """Sends what `report` returns, where it has changed, from a thread of its own.

    Args:
        child: through which it is sent.
        report: a monitor's function as a pickle, or None; see `ports.ProcessMonitor`.
    """

    def __init__(self, child: Child, report: bytes) -> None:
        self._child = child
        self._report = report
        self._sent = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ackfloor:report", daemon=True)

    def start(self) -> None:
        """Report from now on."""
        self._thread.start()

    def end(self) -> None:
        """Report once more, and then no more."""
        self._ended.set()
        self._thread.join(LAST_S)

    def _run(self) -> None:
        try:
            report: Callable[[], str] | None = pickle.loads(self._report)  # noqa: S301 -- the worker's
            while report is not None:
                ended = self._ended.wait(EVERY_S)
                self._send(report())
                if ended:
                    return
        except Exception:
            # The handler goes on; the run's page shows what was reported last.
            log.exception("the report of this process failed; it makes no other")

    def _send(self, text: str) -> None:
        if text != self._sent:
            self._child.send(report=text)
            self._sent = text
