"""Calls of the run's monitor, which is a plugin's: what it raises must not end a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ackfloor.ports import RunMonitor

log = logging.getLogger("ackfloor.supervisor")


class MonitorCalls:
    """Calls a monitor, or nothing where there is none.

    Args:
        monitor: the run's; None for no monitoring.
    """

    __slots__ = ("_monitor",)

    def __init__(self, monitor: RunMonitor | None) -> None:
        self._monitor = monitor

    def __call__(self, tell: Callable[[RunMonitor], None]) -> None:
        """Have the monitor called; what it raises is logged."""
        if self._monitor is None:
            return
        try:
            tell(self._monitor)
        except Exception:
            log.exception("the monitor failed")
