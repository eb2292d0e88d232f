"""The ack strip: which offsets from a partition's floor to its position are settled, as a line.

    ·██▒█·▸█

A cell is one offset, or equally many where there are more offsets than cells: settled, partly
settled, open, or open and running.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from ackfloor.core.acks.gap_set import Runs

SETTLED, PARTLY, OPEN, RUNNING = "█", "▒", "·", "▸"
#: Cells of a strip by default.
WIDTH = 40


def ack_strip(
    floor: int, runs: Runs, until: int, running: Iterable[int] = (), width: int = WIDTH
) -> str:
    """The strip from `floor` to `until`; empty where there is nothing between them.

    Args:
        runs: settled offsets, as ascending runs [start, end).
        running: offsets whose handlers run.
        width: most cells.
    """
    span = until - floor
    if span <= 0:
        return ""
    cells = min(span, width)
    bounds = [floor + n * span // cells for n in range(cells + 1)]
    sums = list(accumulate((end - start for start, end in runs), initial=0))
    below = [_settled_below(bound, runs, sums) for bound in bounds]
    busy = {bisect_right(bounds, offset) - 1 for offset in running if floor <= offset < until}
    return "".join(
        RUNNING if n in busy else _cell(below[n + 1] - below[n], bounds[n + 1] - bounds[n])
        for n in range(cells)
    )


def _cell(settled: int, offsets: int) -> str:
    return SETTLED if settled == offsets else PARTLY if settled else OPEN


def _settled_below(bound: int, runs: Runs, sums: list[int]) -> int:
    """How many settled offsets are below `bound`; `sums` are those of the runs before each."""
    index = bisect_right(runs, bound, key=lambda run: run[0])
    if index == 0:
        return 0
    start, end = runs[index - 1]
    return sums[index - 1] + min(bound, end) - start
