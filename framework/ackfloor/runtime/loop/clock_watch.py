"""ClockWatch: notices inside a worker that the machine's clock was set back.

The Kafka client waits by the wall clock (librdkafka #2145): a wait that is under way when the clock
is set back by an hour takes an hour longer. That holds for the owner thread's poll and for every
thread of the client, those that send heartbeats included, so a worker that still makes turns may
have left its group without knowing. Nothing wakes such a wait from outside. So the worker is
replaced: in order where its owner thread comes by, else by the supervisor.

A thread of its own looks, because the owner thread may be the one that waits. A clock that is set
forward ends waits early, which harms nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds between two looks.
LOOK_S = 1.0
#: What is late by less than so many seconds is not worth another start.
HARMLESS_S = 3.0
#: Clocks that were read within so many seconds were read at once.
INSTANT_S = 0.5


class ClockWatch:
    """Compares the wall clock with the monotonic one.

    Args:
        on_set_back: is told by how many seconds; on a thread of the watch's own.
        wall: the wall clock, in seconds.
        monotonic: the monotonic clock.
    """

    def __init__(
        self,
        on_set_back: Callable[[float], None],
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_set_back = on_set_back
        self._wall = wall
        self._monotonic = monotonic
        self._ahead_s = self._ahead()

    def start(self) -> None:
        """Look every second, for as long as the process lives."""
        threading.Thread(target=self._run, name="ackfloor:clock", daemon=True).start()

    def look(self) -> None:
        """Compare the clocks with what they were at the last look."""
        ahead_s = self._ahead()
        set_back_s, self._ahead_s = self._ahead_s - ahead_s, ahead_s
        if set_back_s > HARMLESS_S:
            self._on_set_back(set_back_s)

    def _ahead(self) -> float:
        """How far the wall clock is ahead of the monotonic one."""
        while True:
            before_s = self._monotonic()
            wall_s = self._wall()
            after_s = self._monotonic()
            if after_s - before_s < INSTANT_S:
                return wall_s - after_s
            # The process stood still between the two: that is no jump.

    def _run(self) -> None:
        while True:
            # By the monotonic clock: this wait survives what it looks for.
            time.sleep(LOOK_S)
            self.look()
