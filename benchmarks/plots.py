"""The results drawn: who handles how many records a second, and how costs grow."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.results import values
from benchmarks.speed import Found

OURS = "#1f6f8b"
OTHERS = "#b8b8b8"


def bars(found: Found, path: Path) -> None:
    """A bar for each peer in each case, on a logarithmic scale."""
    from matplotlib import pyplot as plt

    shown = {title: [e for e in entries if e.rounds] for title, entries in found.items()}
    shown = {title: entries for title, entries in shown.items() if entries}
    heights = [len(entries) + 1.2 for entries in shown.values()]
    figure, axes = plt.subplots(
        len(shown), 1, figsize=(8, 0.28 * sum(heights) + 0.5), sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for axis, (title, entries) in zip(axes[:, 0], shown.items(), strict=True):
        rates = [median(values(e, "records_per_s")) for e in entries]
        colours = [OURS if e.run.peer == "ackfloor" else OTHERS for e in entries]
        bars = axis.barh([e.name for e in entries], rates, color=colours)
        axis.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=7)
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel("records per second, median, logarithmic", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def curves(found: dict[str, dict[int, float]], units: dict[str, str], path: Path) -> None:
    """A small plot for each curve: flat is good."""
    from matplotlib import pyplot as plt

    rows = (len(found) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(8, 2.2 * rows), squeeze=False)
    for axis, (name, curve) in zip(axes.flat, found.items(), strict=False):
        axis.plot(list(curve), list(curve.values()), marker="o", color=OURS)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.15 * max(curve.values()))
        axis.set_title(f"{name} ({units[name]})", fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
