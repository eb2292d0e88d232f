"""Restarts: how long to wait before a worker that has ended is started again."""

from __future__ import annotations

import logging

from ackfloor.runtime.supervision.exit_codes import Exit

log = logging.getLogger("ackfloor.supervisor")

FIRST_BACKOFF_S = 0.5
LAST_BACKOFF_S = 30.0
#: After a run of this length a worker's backoff starts over.
STEADY_S = 60.0
#: Between two attempts to join under a name that the group has not released.
HELD_UP_S = 3.0


class Restarts:
    """The restarts of one worker.

    Args:
        who: the worker, for the log.

    Attributes:
        failures: how often it has failed without a steady run since.
    """

    __slots__ = ("_who", "failures")

    def __init__(self, who: str) -> None:
        self._who = who
        self.failures = 0

    def is_enough(self, most: int, code: int, ran_s: float) -> bool:
        """Whether a worker that ended so has failed for the last time.

        Args:
            most: how often it is started again without a steady run between.
            code: its exit code.
            ran_s: how long it ran, in seconds.
        """
        failed = code not in (Exit.WORN_OUT, Exit.HELD_UP)
        return failed and ran_s < STEADY_S and self.failures >= most

    def wait_s(self, code: int, how: str, ran_s: float) -> float:
        """Seconds to wait, which are logged.

        Args:
            code: its exit code.
            how: how it ended, for the log.
            ran_s: how long it ran, in seconds.
        """
        if code == Exit.WORN_OUT:
            log.warning("%s asked to be replaced; restarting it now", self._who)
            return 0.0
        if code == Exit.HELD_UP:
            log.warning("%s: its name is not free; retry in %g s", self._who, HELD_UP_S)
            return HELD_UP_S
        if ran_s >= STEADY_S:
            self.failures = 0
        wait_s = float(min(FIRST_BACKOFF_S * 2.0 ** min(self.failures, 10), LAST_BACKOFF_S))
        self.failures += 1
        log.error("%s %s; restarting it in %.1f s", self._who, how, wait_s)
        return wait_s
