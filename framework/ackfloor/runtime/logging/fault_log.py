"""FaultLog: log lines when a fault begins, lasts, and ends.

One line for each, however many records wait for it. The lines of single records (`delivery_log`)
are few and say nothing of when it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ackfloor.core.state.snapshot import Fault

log = logging.getLogger("ackfloor.worker")

#: The kinds that no other log line reports.
KINDS = frozenset({"parking", "kafka"})
#: Seconds after which one that lasts is logged again.
SAY_AGAIN_S = 60.0


class FaultLog:
    """The faults that have been logged and have not ended."""

    def __init__(self) -> None:
        #: (subject, cause) -> since when (ms), and when it is logged again (monotonic seconds).
        self._logged: dict[tuple[str, str], tuple[int, float]] = {}

    def log_changes(self, faults: Iterable[Fault], now_s: float, now_ms: int) -> None:
        """Log what has begun, or goes on for long, and what has ended."""
        named = {(f.subject, f.cause): f for f in faults if f.kind in KINDS}
        for key in self._logged.keys() - named.keys():
            since_ms, _ = self._logged.pop(key)
            lasted_s = max(0.0, (now_ms - since_ms) / 1000)
            log.warning("%s: the fault is over after %.0f s (%s)", key[0], lasted_s, key[1])
        for key, fault in named.items():
            logged = self._logged.get(key)
            if logged is None or now_s >= logged[1]:
                self._logged[key] = fault.since_ms, now_s + SAY_AGAIN_S
                lasts_s = max(0.0, (now_ms - fault.since_ms) / 1000)
                lasts = f" (for {lasts_s:.0f} s)" if lasts_s >= 1.0 else ""
                log.error("%s: %s%s", fault.subject, fault.message, lasts)
