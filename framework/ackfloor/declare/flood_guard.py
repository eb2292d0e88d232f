"""FloodGuard: the predecessor of the circuit breaker; accepted and ignored for one release.

Only `enabled=False` still means something: the handler's circuit breaker never opens.
"""

from __future__ import annotations

import warnings
from datetime import timedelta

WHY = "the flood guard gave way to the circuit breaker, and its settings are ignored"
FIX = "write breaker=CircuitBreaker(...), or breaker=None for none"


class FloodGuard:
    """Deprecated: write `breaker=CircuitBreaker(...)`.

    Attributes:
        enabled: False: the handler's circuit breaker never opens.
    """

    __slots__ = ("enabled",)

    def __init__(
        self,
        limit: float = 0.5,
        window: int = 100,
        min_sample: int = 20,
        forget_after: timedelta | str = "60s",
        probe_delay: timedelta | str = "1s",
        max_probe_delay: timedelta | str = "5s",
        *,
        enabled: bool = True,
    ) -> None:
        del limit, window, min_sample, forget_after, probe_delay, max_probe_delay
        self.enabled = enabled
        warnings.warn(f"{WHY}: {FIX}", DeprecationWarning, stacklevel=2)
