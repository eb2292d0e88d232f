"""The real clocks."""

from __future__ import annotations

import time

from ackfloor.core.model import Now


class SystemClock:
    """Implements `ports.Clock` with the machine's clocks."""

    def now(self) -> Now:
        """One reading of both clocks."""
        return Now(time.monotonic(), time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let other threads run."""
        time.sleep(seconds)
