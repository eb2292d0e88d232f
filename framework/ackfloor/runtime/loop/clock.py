"""The real clocks."""

from __future__ import annotations

import time

from ackfloor.core.records.record import Now


class SystemClock:
    """Implements `ports.Clock` with the machine's clocks."""

    def now(self) -> Now:
        """One reading of both clocks."""
        return Now(time.monotonic(), time.time_ns() // 1_000_000)

    #: Monotonic seconds; read twice for every record, so without a call around it.
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Let other threads run."""
        time.sleep(seconds)
