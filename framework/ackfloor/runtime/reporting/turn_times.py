"""TurnTimes: where the owner thread's time goes, to polls or to work."""

from __future__ import annotations


class TurnTimes:
    """Whoever ends a stretch of time says what it was spent on.

    Attributes:
        polled_s: seconds of waiting for records, and for handlers in a rebalance.
        worked_s: seconds of everything else.
    """

    __slots__ = ("_since_s", "polled_s", "worked_s")

    def __init__(self, mono_s: float) -> None:
        self.polled_s = 0.0
        self.worked_s = 0.0
        self._since_s = mono_s

    def polled(self, mono_s: float) -> None:
        """The time until now went to a poll."""
        self.polled_s += mono_s - self._since_s
        self._since_s = mono_s

    def worked(self, mono_s: float) -> None:
        """The time until now went to work."""
        self.worked_s += mono_s - self._since_s
        self._since_s = mono_s
