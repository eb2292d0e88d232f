"""The live view: throughput, floor and gaps per partition, parked, dead-lettered, and the news.

In a terminal it redraws a table; elsewhere it prints a line for every piece of news and every few
seconds. It decides nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ackfloor_handlers.demo.account.facts import Place
from ackfloor_handlers.demo.run_watch import (
    ACKED,
    DEAD_LETTERED,
    NOTHING,
    PARKED,
    Counts,
    PartitionView,
    RunView,
)

#: Seconds over which throughput is averaged, and between two lines without a terminal.
WINDOW_S = 3.0
LINE_EVERY_S = 5.0
_NEWS = 6
_BAR = 40


class LiveView:
    """The display while the orders are handled.

    Args:
        console: standard error, because standard output is for the account.
        total: how many orders there are.
    """

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._started_s = time.monotonic()
        self._produced = 0
        self._view = NOTHING
        self._seen: dict[Place, PartitionView] = {}
        self._counts = Counts()
        self._rates: deque[tuple[float, int]] = deque([(self._started_s, 0)])
        self._news: deque[str] = deque(maxlen=_NEWS)
        self._line_s = self._started_s
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=5, transient=False
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def tell(self, news: str) -> None:
        """Something happened."""
        line = f"{time.monotonic() - self._started_s:5.1f} s  {news}"
        self._news.append(line)
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)

    def tell_seldom(self, news: str) -> None:
        """Something goes on: without a terminal, a line every few seconds."""
        now_s = time.monotonic()
        if not self._console.is_terminal and now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            self.tell(news)

    def show(self, view: RunView, counts: Counts, produced: int) -> None:
        """The run as it is now."""
        now_s = time.monotonic()
        self._view, self._counts, self._produced = view, counts, produced
        self._seen |= {part.place: part for part in view.partitions if not part.tier}
        self._rates.append((now_s, counts.total(ACKED)))
        while now_s - self._rates[0][0] > WINDOW_S and len(self._rates) > 2:
            self._rates.popleft()
        self.tell_seldom(self._summary())

    def _rate(self) -> float:
        (from_s, before), (to_s, after) = self._rates[0], self._rates[-1]
        return (after - before) / (to_s - from_s) if to_s > from_s else 0.0

    def _summary(self) -> str:
        acked = self._counts.total(ACKED)
        parts = [f"produced {self._produced:,}", f"handled {acked:,} ({self._rate():,.0f}/s)"]
        for word, name in (("parked", PARKED), ("dead-lettered", DEAD_LETTERED)):
            parts.append(f"{word} {self._counts.total(name):,}")
        return ", ".join(parts)

    def _picture(self) -> RenderableType:
        acked = self._counts.total(ACKED)
        dead = self._counts.total(DEAD_LETTERED)
        head = Table.grid(padding=(0, 2))
        for word, number, rate in (
            ("produced", self._produced, ""),
            ("ended", acked + dead, f"{self._rate():,.0f}/s handled"),
        ):
            bar = ProgressBar(self._total, min(self._total, number), width=_BAR)
            head.add_row(word, bar, f"{number:,}", rate)
        counted = Table.grid(padding=(0, 2))
        for word, name in (
            ("handled", ACKED),
            ("parked", PARKED),
            ("dead-lettered", DEAD_LETTERED),
        ):
            by_reason = self._counts.by_label(name)
            counted.add_row(word, f"{self._counts.total(name):,}", _reasons(by_reason))
        news = Text("\n".join(self._news), style="dim", overflow="ellipsis", no_wrap=True)
        elapsed = f"{time.monotonic() - self._started_s:.0f} s"
        parts = (
            head,
            counted,
            "",
            _partitions(self._view, self._seen),
            *_faults(self._view),
            "",
            news,
        )
        return Panel(Group(*parts), title=self._title, subtitle=elapsed, title_align="left")


def _reasons(by_reason: Mapping[str, int]) -> Text:
    named = (f"{reason} {count:,}" for reason, count in by_reason.items() if reason)
    return Text(", ".join(named), "dim")


def _partitions(view: RunView, seen: Mapping[Place, PartitionView]) -> RenderableType:
    """The source's partitions; one without a worker in its last state."""
    source = Table("partition", "worker", box=None, header_style="bold", padding=(0, 1))
    for name in ("floor", "gaps", "open", "to go"):
        source.add_column(name, justify="right")
    owned = {part.place for part in view.partitions}
    for (topic, partition), part in sorted(seen.items()):
        gaps = Text(f"{part.gaps:,}", "yellow" if part.gaps else "dim")
        numbers = (f"{part.floor:,}", gaps, f"{part.open:,}", f"{part.left:,}")
        if part.place in owned:
            source.add_row(f"{topic}/{partition}", str(part.worker), *numbers)
        else:
            source.add_row(f"{topic}/{partition}", Text("none", "red"), *numbers, style="dim")
    if not seen:
        return Text("waiting for the group's first assignment", "dim")
    return Columns([source, _tiers(view)], padding=(0, 3))


def _tiers(view: RunView) -> Table:
    tiers: dict[str, list[PartitionView]] = {}
    for part in view.partitions:
        if part.tier:
            tiers.setdefault(part.place[0].rpartition("--")[2], []).append(part)
    table = Table("retry topic", box=None, header_style="bold", padding=(0, 1))
    for name in ("seen", "waiting"):
        table.add_column(name, justify="right")
    for name, parts in tiers.items():
        seen = sum(part.position for part in parts)
        table.add_row(name, f"{seen:,}", f"{sum(part.left for part in parts):,}")
    return table


def _faults(view: RunView) -> list[Text]:
    """The first faults, one line each: what keeps records open."""
    return [
        Text(fault, "red", overflow="ellipsis", no_wrap=True)
        for fault in dict.fromkeys(view.faults)
    ][:2]
