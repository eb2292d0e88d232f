"""The charts as plotly figures: plain data, drawn by the page's script.

Colours are of middle lightness, for a light and a dark page alike; patterns repeat them for paper
without colour. Text and grid have no colour here: the page's style gives it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from ackfloor_monitoring.spark.report.answer import Bucket, Report, Step
from ackfloor_monitoring.spark.report.formatting import count, owner, seconds
from ackfloor_monitoring.spark.report.page.markup import text

Figure = dict[str, Any]
#: Charts by the name of their place in the page.
Figures = dict[str, Figure]

_COLOURS = ("#3f6ea3", "#f0a13a", "#4a8f55", "#c9a3c4", "#8c5a4a", "#7cc4c0", "#d1495b", "#999999")
_PATTERNS = ("", "/", ".", "x", "-", "\\", "+", "|")
_OUTCOMES = (
    ("recovered", "recovered", "#4a9c6d", ""),
    ("dead", "dead letter", "#d1495b", "x"),
    ("waiting", "still waits", "#e0a030", "/"),
    ("unknown", "unknown", "#999999", "."),
)
# An axis of names: the first one on top, with room between name and bar.
_NAMES = {"autorange": "reversed", "type": "category", "ticklabelstandoff": 6}
_MOST_SERIES = len(_COLOURS)
_MOST_KEYS = 12
MOST_TIMES = 12
MOST_STEPS = 30


def over_time(report: Report, name: Callable[[Bucket], str]) -> Figure:
    """Failures in each stretch of time, stacked by what `name` says; the rarest as "other"."""
    totals: Counter[str] = Counter()
    for each in report.over_time:
        totals[name(each)] += each.failures
    named = [series for series, _ in totals.most_common(_MOST_SERIES)]
    if len(totals) > _MOST_SERIES:
        named[-1] = "other"
    heights: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for each in report.over_time:
        series = name(each) if name(each) in named else "other"
        heights[series][each.start] += each.failures
    bars = [
        {
            "type": "bar",
            "name": text(series),
            "x": [start.strftime("%Y-%m-%d %H:%M:%S") for start in report.buckets],
            "y": [heights[series].get(start, 0) for start in report.buckets],
            "marker": _marker(_COLOURS[at], _PATTERNS[at]),
            "hovertemplate": "%{x}<br>%{y:,} failures<extra>%{fullData.name}</extra>",
        }
        for at, series in enumerate(named)
    ]
    return {"data": bars, "layout": _layout(barmode="stack", yaxis=_counts("failures"))}


def funnel(steps: Sequence[Step]) -> Figure:
    """What became of a handler's messages after each of the first failed deliveries."""
    further = [after.failed for after in steps[1:]] + [0]
    steps = steps[:MOST_STEPS]
    labels = [step_label(step) for step in steps]
    bars = []
    for field, title, colour, pattern in _OUTCOMES:
        numbers = [getattr(step, field) for step in steps]
        if any(numbers):
            bars.append(_part(title, numbers, labels, _marker(colour, pattern)))
    bars.append(
        _part("failed again", further[:MOST_STEPS], labels, _marker("rgba(128,128,128,0.25)", ""))
    )
    layout = _layout(barmode="stack", yaxis=_NAMES, xaxis=_counts("messages"))
    return {"data": bars, "layout": layout}


def step_label(step: Step) -> str:
    """A step by its number, and how long its messages then wait."""
    waits = ", ".join(step.tiers)
    return f"failure {step.attempt}" + (f", wait {text(waits)}" if waits else "")


def times(report: Report) -> Figure:
    """Seconds to recovery and to death: a line from p50 to p99 for the handlers with most."""
    lines: list[Figure] = []
    largest = sorted(report.times, key=lambda row: -(row.recovered_messages + row.dead_messages))
    shown_rows = [row for row in report.times if row in largest[:MOST_TIMES]]
    for field, title, colour, symbol in (
        ("to_recover_s", "to recover, at least", "#4a9c6d", "circle"),
        ("to_death_s", "to the dead-letter topic", "#d1495b", "x"),
    ):
        for row in shown_rows:
            spread = getattr(row, field)
            if spread is None:
                continue
            who = text(owner(row.group, row.handler, report))
            shown = [max(value, 0.001) for value in spread]
            lines.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": title,
                    "legendgroup": field,
                    "showlegend": not any(line["legendgroup"] == field for line in lines),
                    "x": shown,
                    "y": [who] * 3,
                    "text": [
                        f"{share}: {seconds(value)}"
                        for share, value in zip(("p50", "p95", "p99"), spread, strict=True)
                    ],
                    "hovertemplate": "%{text}<extra>%{y}</extra>",
                    "line": {"color": colour, "width": 3},
                    "marker": {"color": colour, "size": 10, "symbol": symbol},
                }
            )
    axis = {
        "type": "log",
        "tickvals": (0.001, 1, 60, 3_600, 86_400),
        "ticktext": ("at once", "1 s", "1 min", "1 h", "1 d"),
    }
    return {"data": lines, "layout": _layout(xaxis=axis, yaxis=_NAMES)}


def hot_keys(report: Report) -> Figure:
    """The keys with the most failures."""
    keys = report.hot_keys[:_MOST_KEYS]
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [key.failures for key in keys],
        "y": [text(_cut(f"{key.key} in {key.topic} for {key.group}", 44)) for key in keys],
        "text": [count(key.failures) for key in keys],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": _marker(_COLOURS[0], ""),
        "hovertemplate": "%{y}: %{x:,} failures<extra></extra>",
    }
    # Room for the number behind the longest bar.
    failures = {**_counts("failures"), "range": [0, 1.15 * keys[0].failures]}
    layout = _layout(yaxis=_NAMES, xaxis=failures, showlegend=False)
    return {"data": [bar], "layout": layout}


def _counts(title: str) -> Figure:
    return {"title": {"text": title}, "tickformat": ",d"}


def _part(title: str, numbers: Sequence[int], labels: Sequence[str], marker: Figure) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "x": list(numbers),
        "y": list(labels),
        "marker": marker,
        "hovertemplate": "%{y}: %{x:,} messages<extra>%{fullData.name}</extra>",
    }


def _marker(colour: str, pattern: str) -> Figure:
    shape = {"shape": pattern, "fgcolor": "rgba(255,255,255,0.9)", "size": 7, "solidity": 0.35}
    return {"color": colour, "pattern": {**shape, "fillmode": "overlay"}}


def _layout(**more: Any) -> Figure:
    """Room for the longest labels, no background of its own, the legend above."""
    axes = {name: {"automargin": True, **more.pop(name, {})} for name in ("xaxis", "yaxis")}
    return {
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "bargap": 0.25,
        "hoverlabel": {"align": "left"},
        **axes,
        **more,
    }


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"
