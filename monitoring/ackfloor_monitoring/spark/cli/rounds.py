"""Rounds: work that is done again after a time, until somebody stops it."""

from __future__ import annotations

import time
from typing import Final

_LOOK_EVERY_S: Final = 0.1


class Rounds:
    """When the next round begins.

    `stop` is for signal handlers. They run in the thread that waits, at any instant of it, so a
    lock or an event could wait for itself there: this is a plain attribute, looked at often.
    """

    def __init__(self, every_s: float) -> None:
        """Begin each round `every_s` seconds after the one before has ended."""
        self._every_s = every_s
        self._stopped = False

    def stop(self) -> None:
        """End the wait, and begin no other round."""
        self._stopped = True

    def stopped(self) -> bool:
        """Whether `stop` was called, at whatever instant."""
        return self._stopped

    def wait(self) -> None:
        """Return when the next round is due, or soon after `stop`."""
        due_s = time.monotonic() + self._every_s
        while not self._stopped and time.monotonic() < due_s:
            time.sleep(_LOOK_EVERY_S)
