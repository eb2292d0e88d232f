"""TokenBucket: limits how fast failed records are parked while a circuit breaker is not closed.

Theory. A bucket of tokens, one for each record. It fills at the worker's share of the group's rate
and holds a burst of a few seconds. So over any stretch of time no more records leave than the burst
and the rate times its length, and a breaker that opens again and again lets no more through.

Invariant: in any `t` seconds at most `BURST * share` (one at least) `+ rate * share * t` are taken.
"""

from __future__ import annotations

#: Tokens that the whole group's buckets hold.
BURST = 10.0


class TokenBucket:
    """One handler's bucket."""

    __slots__ = ("_at_s", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._at_s = 0.0

    def take(self, rate_per_s: float, share: float, now_s: float) -> bool:
        """Whether one more record may leave now.

        Args:
            rate_per_s: the group's rate, records a second.
            share: this worker's part of it, above 0 up to 1.
            now_s: monotonic seconds.
        """
        most = max(1.0, BURST * share)
        if self._tokens is None:
            self._tokens = most
        else:
            filled = self._tokens + (now_s - self._at_s) * rate_per_s * share
            self._tokens = min(most, filled)
        self._at_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
