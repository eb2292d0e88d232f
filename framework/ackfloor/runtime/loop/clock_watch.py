"""ClockWatch: notices inside a worker that the machine's clock was set back.

The Kafka client waits by the wall clock (librdkafka #2145): a wait that is under way when the clock
is set back by an hour takes an hour longer. That holds for the owner thread's poll and for every
thread of the client, those that send heartbeats included, so a worker that still makes turns may
have left its group without knowing. Nothing wakes such a wait from outside. So the worker is
replaced: it drains where its owner thread still makes turns, else the supervisor kills it.

A separate thread checks, because the owner thread may be the one that waits. A clock that is set
forward ends waits early, which does no harm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds between two checks.
LOOK_S = 1.0
#: A clock set back by less is not worth a restart.
HARMLESS_S = 3.0
#: Two reads within so many seconds count as one moment.
INSTANT_S = 0.5


class ClockWatch:
    """Compares the wall clock with the monotonic one.

    Args:
        on_set_back: called with the seconds, on the watch's own thread.
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
        self._stopped = False

    def stop(self) -> None:
        """Check no more; the thread ends within a second."""
        self._stopped = True

    def start(self) -> None:
        """Check every second until `stop`."""
        threading.Thread(target=self._run, name="ackfloor:clock", daemon=True).start()

    def look(self) -> None:
        """Compare the clocks with what they were at the last check."""
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
            # The process was suspended between the reads: that is no jump.

    def _run(self) -> None:
        while not self._stopped:
            # By the monotonic clock: a wall clock set back does not lengthen this wait.
            time.sleep(LOOK_S)
            self.look()
