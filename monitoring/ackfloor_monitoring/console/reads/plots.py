"""Plots: the figures of the last hour, of a Prometheus that is configured, or the console's own.

What a Prometheus has was there before the console. While it does not answer, or has nothing of
these groups, the console's own are shown, and why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Protocol

from ackfloor_monitoring.console.reads import history
from ackfloor_monitoring.console.reads.history import History, Plot, Point
from ackfloor_monitoring.console.reads.prometheus import NoFigures

#: After so many times `EVERY_S` an answer is too old to be the last hour.
OLD: Final = 4

log = logging.getLogger("ackfloor.console")


class Figures(Protocol):
    """What has the figures of groups: a `Prometheus`."""

    def last_hour(self, groups: Collection[str], now_s: float) -> Sequence[Point]:
        """Those of the last hour; blocks, and raises NoFigures."""


@dataclass(frozen=True, slots=True)
class Plots:
    """What a page shows.

    Attributes:
        since_ms: when the first point was; None while there are too few.
        of_prometheus: whether a Prometheus has them.
        late: why they are the console's own although one is configured; empty if none is.
    """

    plots: Sequence[Plot]
    since_ms: int | None
    of_prometheus: bool = False
    late: str = ""


class PrometheusHistory:
    """The newest answer of a Prometheus.

    Args:
        asking: where it is asked.
        clock: seconds since 1970.
    """

    def __init__(
        self, figures: Figures, asking: Executor, clock: Callable[[], float] = time.time
    ) -> None:
        self._figures = figures
        self._asking = asking
        self._clock = clock
        self._history = History()
        self._late = "it has not answered yet"
        self._answered_s = clock()

    async def renew(self, groups: Collection[str]) -> None:
        """Ask for the figures of these groups."""
        now_s, loop = self._clock(), asyncio.get_running_loop()
        try:
            points = await loop.run_in_executor(
                self._asking, self._figures.last_hour, groups, now_s
            )
        except NoFigures as exc:
            self._late = str(exc)
        except Exception as exc:
            log.exception("a Prometheus could not be asked")
            self._late = f"{type(exc).__name__}: {exc}; the console's log has more"
        else:
            self._history = History()
            for each in points:
                self._history.add(each.at_ms, each.figures)
            self._late = ""
        self._answered_s = now_s

    def plots(self, own: History) -> Plots:
        """What is shown: the console's own where there is no answer."""
        late, age_s = self._late, self._clock() - self._answered_s
        if not late and age_s > OLD * history.EVERY_S:
            late = f"it has not answered for {age_s:.0f} s"
        if late:
            return Plots(own.plots(), own.since_ms, late=late)
        return Plots(self._history.plots(), self._history.since_ms, of_prometheus=True)
