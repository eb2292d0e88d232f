"""How often somebody may try a token: a bucket for each client address, refilled over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

#: Tries at once, and seconds until one more is allowed.
TRIES: Final = 10
REFILL_S: Final = 6.0
#: So many addresses are known; the one that tried longest ago is forgotten first.
MOST: Final = 10_000


class LoginAttempts:
    """The failed ones of each address.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: Address -> tries left, and when that was so.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Seconds until this address may try again; 0 if it may now."""
        return max(0.0, (1 - self._of(address)) * REFILL_S)

    def failed(self, address: str) -> None:
        """Count a failed try."""
        self._left[address] = (self._of(address) - 1, self._clock())
        self._left.move_to_end(address)
        while len(self._left) > MOST:
            self._left.popitem(last=False)

    def _of(self, address: str) -> float:
        left, at_s = self._left.get(address, (float(TRIES), self._clock()))
        return min(float(TRIES), left + (self._clock() - at_s) / REFILL_S)
