"""ManualClock: time that stands still until a test moves it.

It counts whole nanoseconds, so a deadline that was added up from fractions of a second is
reached exactly and never missed by a rounding error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil

from ackfloor.core.records.record import Now
from ackfloor.core.values.durations import parse_duration

_NS = 1_000_000_000
#: Where the monotonic clock begins: not 0, which means "never" in many a place.
FIRST_S = 1_000
#: Beyond this, seconds as floats get coarser than an event loop's resolution.
LAST_S = 16_000_000
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements `ports.Clock`; moves only when it is told to.

    Args:
        start: the wall-clock time at which it begins; always the same unless given, so that
            tests see the same timestamps every time.
    """

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start_ms = round(start.timestamp() * 1000)
        self._ns = FIRST_S * _NS
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def now(self) -> Now:
        """One reading of both clocks."""
        ns = self._ns
        return Now(ns / _NS, self._start_ms + (ns - FIRST_S * _NS) // 1_000_000)

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return self._ns / _NS

    @property
    def utc(self) -> datetime:
        """The wall-clock time."""
        return datetime.fromtimestamp(self.now().wall_ms / 1000, UTC)

    def advance(self, by: timedelta | str) -> None:
        """Move both clocks, and let everybody who follows the clock catch up.

        Args:
            by: a timedelta, or text with a unit ("30s", "1h30m").
        """
        self.move_to(self.monotonic() + parse_duration(by, field="by"))
        self.notify()

    def sleep(self, seconds: float) -> None:
        """Move by as much, and let other threads run."""
        self.move_to(self.monotonic() + seconds)
        self.notify()
        time.sleep(0)

    def move_to(self, mono_s: float) -> None:
        """Move to a monotonic time and tell nobody; a time that has passed changes nothing."""
        if mono_s > LAST_S:
            raise ValueError(f"a manual clock runs for {LAST_S - FIRST_S} seconds, not further")
        with self._lock:
            if mono_s > self._ns / _NS:
                self._ns = max(self._ns + 1, ceil(mono_s * _NS))

    def notify(self) -> None:
        """Call every follower: the clock may have moved."""
        for follower in list(self._callbacks):
            follower()

    def follow(self, follower: Callable[[], None]) -> None:
        """Have `follower` called after each move, on the thread that moves the clock."""
        self._callbacks.append(follower)

    def unfollow(self, follower: Callable[[], None]) -> None:
        """Stop calling `follower`."""
        self._callbacks.remove(follower)
