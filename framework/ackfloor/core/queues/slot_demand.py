"""SlotDemand: how many slots some keys may need next, from how many they had at each look.

Theory. Keys that have nothing to do with each other come by chance, so the number of slots that
they have varies around a mean. It is rarely more than three standard deviations above it. Both are
those of recent looks, the older ones weighing less: what comes evenly needs hardly more than its
mean. A sudden rise shows in neither for a while, so the demand is never below the most seen lately,
which fades; nor beyond twice as many, so it ends soon after them. One slot more is for what happens
between two looks.
"""

from __future__ import annotations

from math import sqrt

#: How many looks are recent.
RECENT_LOOKS = 250
#: So many looks that saw none are taken to lie before the first one, which may be by chance.
LOOKS_BEFORE = 25
#: Standard deviations above the mean that the demand covers.
DEVIATIONS = 3.0
#: What is left, at the next look, of the most that was seen: half after 69 looks.
FADES = 0.99


class SlotDemand:
    """The demand of some keys."""

    __slots__ = ("_looks", "_mean", "_most", "_variance")

    def __init__(self) -> None:
        self._looks = LOOKS_BEFORE
        self._mean = self._variance = self._most = 0.0

    def seen(self, slots: int) -> None:
        """They have so many slots now."""
        self._most = max(float(slots), FADES * self._most)
        self._looks = min(self._looks + 1, RECENT_LOOKS)
        weight = 1 / self._looks
        off = slots - self._mean
        self._mean += weight * off
        self._variance = (1 - weight) * (self._variance + weight * off * off)

    def slots(self) -> int:
        """How many they may need next; 0 while they need none."""
        expected = self._mean + DEVIATIONS * sqrt(self._variance)
        found = round(max(self._most, min(expected, 2 * self._most)))
        return found + 1 if found else 0
