"""History: a few figures of a cluster since the console's start, for at most an hour.

They are taken every few seconds, whether somebody looks or not: who comes in the middle of an
incident sees when it began. What did not answer leaves a gap.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: Seconds between two points, and how many are kept: an hour.
EVERY_S: Final = 15.0
MOST: Final = 240
#: Seconds to wait for the answers of a point: a large cluster takes long.
PATIENCE_S: Final = 60.0
#: Figure -> what a person calls it, in the order in which they are shown.
TITLES: Final[Mapping[str, str]] = {
    "lag": "Behind",
    "open": "Open",
    "running": "In flight",
    "waiting": "Lanes that wait",
    "retry": "In retry topics",
    "dead": "Dead letters",
}
#: The size of a plot in its own units.
WIDTH, HEIGHT = 240, 48

log = logging.getLogger("ackfloor.console")


@dataclass(frozen=True, slots=True)
class Point:
    """One moment.

    Attributes:
        at_ms: when, in milliseconds since 1970.
        figures: those that were known.
    """

    at_ms: int
    figures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure over time.

    Attributes:
        newest: None where it is not known at the end.
        path: of an SVG of `WIDTH` by `HEIGHT`, from 0 up to the most.
    """

    title: str
    newest: int | None
    most: int
    path: str


class History:
    """The points of one cluster."""

    def __init__(self) -> None:
        self._points = deque[Point](maxlen=MOST)
        #: Why the newest point is missing; empty where it is there.
        self.error = ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around what makes a point: where that can't be, the others are there all the same."""
        try:
            yield
        except Exception as exc:
            why = f"{type(exc).__name__}: {exc}"
            if why != self.error:
                log.exception("the console's plots lack a point")
            self.error = why
        else:
            self.error = ""

    def add(self, at_ms: int, figures: Mapping[str, int]) -> None:
        """Keep a point; the oldest one goes where there are too many."""
        self._points.append(Point(at_ms, figures))

    @property
    def since_ms(self) -> int | None:
        """When the first point was taken; None while there are too few for a plot."""
        return self._points[0].at_ms if len(self._points) > 1 else None

    def plots(self) -> list[Plot]:
        """A plot for each figure that was ever known; none while there are too few points."""
        if self.since_ms is None:
            return []
        return [
            Plot(
                title,
                self._points[-1].figures.get(name),
                most := max(each.figures[name] for each in self._points if name in each.figures),
                drawn(list(self._places(name, most))),
            )
            for name, title in TITLES.items()
            if any(name in each.figures for each in self._points)
        ]

    def _places(self, name: str, most: int) -> Iterator[tuple[int, int] | None]:
        """Where the points of a figure are in its plot; None where it was not known."""
        first_ms = self._points[0].at_ms
        span_ms = max(1, self._points[-1].at_ms - first_ms)
        for each in self._points:
            value = each.figures.get(name)
            if value is None:
                yield None
            else:
                x = round(WIDTH * (each.at_ms - first_ms) / span_ms)
                yield x, HEIGHT - round(HEIGHT * value / most) if most else HEIGHT


def drawn(places: Sequence[tuple[int, int] | None]) -> str:
    """A line through these places, which ends and begins again at each gap."""
    parts, pen = list[str](), "M"
    for number, place in enumerate(places):
        if place is None:
            pen = "M"
            continue
        # On the way along a level line nothing has to be said.
        around = places[max(0, number - 1) : number + 2]
        level = pen == "L" and len(around) == 3 and _heights(around) == {place[1]}
        if not level:
            parts.append(f"{pen}{place[0]} {place[1]}")
            pen = "L"
    return "".join(parts)


def _heights(places: Iterable[tuple[int, int] | None]) -> set[int | None]:
    return {None if place is None else place[1] for place in places}
