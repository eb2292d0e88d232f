"""The picture of a soak: throughput, lag, open and gap counts, memory; and when what was done.

`python -m tests.soak.plot RESULT.json PICTURE.png` draws a kept result again.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.soak.report import Result

_COLORS = {
    "workers": "#d62728",
    "brokers": "#9467bd",
    "network": "#1f77b4",
    "topics": "#8c564b",
    "handlers": "#ff7f0e",
    "settings": "#7f7f7f",
    "clock": "#bcbd22",
    "log": "#2ca02c",
}
_SMOOTH_S = 3


def draw(result: Result, picture: Path) -> None:
    """Write the picture as a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    kinds = sorted({str(f["kind"]) for f in result.faults}, key=lambda k: (_family(result, k), k))
    heights = [3, 2, 2, 1.3, 0.25 * max(4, len(kinds))]
    figure, axes = plt.subplots(
        5,
        1,
        figsize=(14, 1.25 * sum(heights)),
        sharex=True,
        height_ratios=heights,
        layout="constrained",
    )
    figure.suptitle(
        f"{result.command}: {result.records:,} records, {len(result.faults)} faults, "
        f"{'clean' if result.clean else 'NOT CLEAN'} ({result.protocol})",
        fontsize=13,
    )
    _throughput(axes[0], result)
    _lag(axes[1], result)
    _open(axes[2], result)
    _memory(axes[3], result)
    _faults(axes[4], result, kinds)
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.axvline(result.ended_s, color="black", linewidth=1, linestyle="--")
    for axis in axes[:4]:
        _shade(axis, result)
    axes[4].set_xlabel("seconds; the dashed line is the end of production")
    axes[4].set_xlim(0, max(result.ended_s + result.settled_after_s, result.ended_s) + 5)
    figure.savefig(picture, dpi=90)
    plt.close(figure)


def _throughput(axis: Any, result: Result) -> None:
    axis.plot(smooth(result.acked), color="#555555", linewidth=1, label="acknowledged")
    axis.plot(smooth(result.ends), color="#1f77b4", linewidth=1.4, label="handler calls ended")
    axis.set_ylabel("records/s")
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper right", ncols=2, fontsize=8)


def _lag(axis: Any, result: Result) -> None:
    seconds = [state[0] for state in result.states]
    axis.plot(seconds, [state[1] for state in result.states], color="#d62728", linewidth=1.4)
    axis.set_ylabel("floor lag\n(offsets)")
    axis.set_ylim(bottom=0)


def _open(axis: Any, result: Result) -> None:
    seconds = [state[0] for state in result.states]
    axis.plot(seconds, [s[2] for s in result.states], color="#9467bd", linewidth=1.2, label="open")
    axis.plot(seconds, [s[3] for s in result.states], color="#2ca02c", linewidth=1.2, label="gaps")
    axis.set_ylabel("open, and settled\nabove the floor")
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper right", ncols=2, fontsize=8)


def _memory(axis: Any, result: Result) -> None:
    seconds = [entry[0] for entry in result.rss]
    smallest, largest = ([entry[i] for entry in result.rss] for i in (1, 2))
    axis.fill_between(seconds, smallest, largest, color="#17becf", alpha=0.4)
    axis.set_ylabel("MiB of\na worker")
    axis.set_ylim(bottom=0)


def _faults(axis: Any, result: Result, kinds: list[str]) -> None:
    for fault in result.faults:
        start, end = float(str(fault["from_s"])), float(str(fault["to_s"]))
        color = _COLORS.get(str(fault["family"]), "black")
        at = kinds.index(str(fault["kind"]))
        axis.barh(at, max(end - start, 0.2), left=start, height=0.6, color=color, alpha=0.75)
        axis.plot([start], [at], marker="|", color=color, markersize=9)
    axis.set_yticks(range(len(kinds)), kinds, fontsize=8)
    axis.set_ylim(len(kinds) - 0.4, -0.6)


def _shade(axis: Any, result: Result) -> None:
    """Where faults hit, a thin line through every curve."""
    for fault in result.faults:
        color = _COLORS.get(str(fault["family"]), "black")
        axis.axvline(float(str(fault["from_s"])), color=color, linewidth=0.7, alpha=0.35)


def _family(result: Result, kind: str) -> str:
    return next(str(f["family"]) for f in result.faults if f["kind"] == kind)


def smooth(values: Any) -> list[float]:
    """The mean over a few seconds."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    steps = [b - a for a, b in pairwise(sums)]
    return [
        sum(steps[max(0, at - _SMOOTH_S + 1) : at + 1]) / min(_SMOOTH_S, at + 1)
        for at in range(len(steps))
    ]


if __name__ == "__main__":
    draw(Result.read(Path(sys.argv[1])), Path(sys.argv[2]))
