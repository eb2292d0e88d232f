"""TurnWatch: how long a worker process has made no turn, as its supervisor has seen it.

Only time in which the supervisor itself ran counts. So a suspended machine, or a frozen container,
does not look like a stuck worker.

The limit depends on what the worker does. Before its first turn it imports the app and enters the
lifespan, which may take any time. A turn may take long in a rebalance while brokers don't answer,
and does where a handler holds the interpreter's lock. But where the clock was set back during a
turn, the client waits until the clock has caught up, see `clock_watch`.
"""

from __future__ import annotations

from ackfloor.runtime.supervision.in_flight_memory import Signs

#: Most seconds without a turn where the clock was set back meanwhile: more than any single request
#: to a broker takes.
SET_BACK_S = 15.0
#: Most seconds otherwise: less than liveness allows (120 s), which would end the whole run.
STILL_S = 100.0
#: The most that counts of the time between two looks, which are to be a tenth of a second apart.
LONGEST_LOOK_S = 1.0


class TurnWatch:
    """Watches one worker process.

    Attributes:
        still_s: seconds without a turn; 0 before the first.
        set_back: the clock was set back since the last turn.
    """

    __slots__ = ("_looked_s", "_turns", "set_back", "still_s")

    def __init__(self, now_s: float) -> None:
        self.still_s = 0.0
        self.set_back = False
        self._looked_s = now_s
        self._turns = 0

    def look(self, signs: Signs, now_s: float) -> None:
        """Take in the process's signs of life, at these monotonic seconds."""
        passed_s = min(now_s - self._looked_s, LONGEST_LOOK_S)
        self._looked_s = now_s
        if signs.turns != self._turns or not signs.turns:
            self.still_s = 0.0
        else:
            self.still_s += passed_s
        self._turns = signs.turns
        self.set_back = signs.turns == signs.set_back > 0

    def stuck(self, status: str, drain_s: float) -> bool:
        """Whether the process is to be killed.

        Args:
            status: its last status.
            drain_s: how long one that drains may take without a turn.
        """
        if status == "draining":
            return self.still_s >= drain_s
        return self.still_s >= (SET_BACK_S if self.set_back else STILL_S)
