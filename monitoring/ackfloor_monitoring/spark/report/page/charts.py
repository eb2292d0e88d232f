"""The charts as plotly figures: plain data, drawn by the page's script.

Colours are of middle lightness, for a light and a dark page alike; patterns repeat them for paper
without colour. Text and grid have no colour here: the page's style gives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from math import log10
from typing import Any

from ackfloor_monitoring.spark.report.answer import Bucket, Report, Step
from ackfloor_monitoring.spark.report.formatting import count, in_middle, owner, seconds, visible

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
_MOST_SERIES = len(_COLOURS)
# As long as a name is beside a chart; on a phone half of the chart is left for it.
_LONGEST, _LONGEST_ON_PHONE = 44, 22
_MOST_KEYS = 12
_AT_ONCE_S = 0.001
_TICKS_S = {
    _AT_ONCE_S: "at once", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3_600: "1 h",
    21_600: "6 h", 86_400: "1 d", 604_800: "7 d", 2_592_000: "30 d", 31_536_000: "1 year",
    315_360_000: "10 years", 3_153_600_000: "100 years",
}  # fmt: skip
_COARSE_S = {_AT_ONCE_S, 1, 60, 3_600, 86_400, 2_592_000, 31_536_000, 3_153_600_000}
_MOST_TICKS = 6
MOST_TIMES = 12
MOST_STEPS = 30


def over_time(report: Report, name: Callable[[Bucket], str]) -> Figure:
    """Failures in each stretch of time, stacked by what `name` says; the rarest as "other"."""
    totals: Counter[str] = Counter()
    for each in report.over_time:
        totals[name(each)] += each.failures
    most = _MOST_SERIES if len(totals) <= _MOST_SERIES else _MOST_SERIES - 1
    places = {series: at for at, (series, _) in enumerate(totals.most_common(most))}
    titles = [*places, *(("other",) if len(totals) > most else ())]
    # By place: a handler may be called as the rest is.
    heights: list[Counter[datetime]] = [Counter() for _ in titles]
    for each in report.over_time:
        heights[places.get(name(each), most)][each.start] += each.failures
    bars = [
        {
            "type": "bar",
            "name": _label(title, _LONGEST),
            "x": [start.strftime("%Y-%m-%d %H:%M:%S") for start in report.buckets],
            "y": [heights[at][start] for start in report.buckets],
            "marker": _marker(_COLOURS[at], _PATTERNS[at]),
            "hovertemplate": "%{x}<br>%{y:,} failures<extra>%{fullData.name}</extra>",
        }
        for at, title in enumerate(titles)
    ]
    return {"data": bars, "layout": _layout(barmode="stack", yaxis=_counts("failures"))}


def funnel(steps: Sequence[Step]) -> Figure:
    """What became of a handler's messages after each of the first failed deliveries."""
    further = [after.failed for after in steps[1:]] + [0]
    steps = steps[:MOST_STEPS]
    labels = [step_label(step) for step in steps]
    bars: list[Figure] = []
    for field, title, colour, pattern in _OUTCOMES:
        numbers = [getattr(step, field) for step in steps]
        if any(numbers):
            bars.append(_part(title, numbers, _marker(colour, pattern)))
    bars.append(_part("failed again", further[:MOST_STEPS], _marker("rgba(128,128,128,0.25)", "")))
    return _by_name(bars, labels, barmode="stack", xaxis=_counts("messages"))


def step_label(step: Step) -> str:
    """A step by its number, and how long its messages then wait."""
    waits = ", ".join(step.tiers)
    return f"failure {step.attempt}" + (f", wait {waits}" if waits else "")


def times(report: Report) -> Figure:
    """Seconds to recovery and to death: a line from p50 to p99 for the handlers with most."""
    lines: list[Figure] = []
    timed = [row for row in report.times if row.to_recover_s or row.to_death_s]
    largest = sorted(timed, key=lambda row: -(row.recovered_messages + row.dead_messages))
    shown_rows = [row for row in timed if row in largest[:MOST_TIMES]]
    for field, title, colour, symbol in (
        ("to_recover_s", "to recover, at least", "#4a9c6d", "circle"),
        ("to_death_s", "to the dead-letter topic", "#d1495b", "x"),
    ):
        for at, row in enumerate(shown_rows):
            spread = getattr(row, field)
            if spread is None:
                continue
            lines.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": title,
                    "legendgroup": field,
                    "showlegend": not any(line["legendgroup"] == field for line in lines),
                    "x": [max(value, _AT_ONCE_S) for value in spread],
                    "y": [at] * 3,
                    "text": [
                        f"{share}: {seconds(value)}"
                        for share, value in zip(("p50", "p95", "p99"), spread, strict=True)
                    ],
                    "hovertemplate": "%{text}<extra>%{customdata}</extra>",
                    "line": {"color": colour, "width": 3},
                    "marker": {"color": colour, "size": 10, "symbol": symbol},
                }
            )
    names = [owner(row.group, row.handler, report) for row in shown_rows]
    return _by_name(lines, names, xaxis=_seconds([value for line in lines for value in line["x"]]))


def _seconds(drawn: Sequence[float]) -> Figure:
    """A logarithmic axis of seconds with a tick below the least and one above the most."""
    ticks = sorted(_TICKS_S)
    least, most = min(drawn, default=0), max(drawn, default=0)
    first = max((at for at, tick in enumerate(ticks[:-1]) if tick <= least), default=0)
    above = [at for at, tick in enumerate(ticks) if tick >= most and at > first]
    last = above[0] if above else len(ticks) - 1
    # Where it is long every tick of a second, a minute, an hour, a day will do.
    shown = ticks[first : last + 1]
    if len(shown) > _MOST_TICKS:
        shown = [tick for tick in shown if tick in _COARSE_S]
    end = max(ticks[last], most)
    return {
        "type": "log",
        "tickvals": shown,
        "ticktext": [_TICKS_S[tick] for tick in shown],
        "range": [log10(ticks[first]) - 0.15, log10(end) + 0.15],
    }


def hot_keys(report: Report) -> Figure:
    """The keys with the most failures."""
    keys = report.hot_keys[:_MOST_KEYS]
    names = [f"{key.key} in {key.topic} for {key.group}" for key in keys]
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [key.failures for key in keys],
        "y": list(range(len(keys))),
        "text": [count(key.failures) for key in keys],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": _marker(_COLOURS[0], ""),
        "hovertemplate": "%{customdata}: %{x:,} failures<extra></extra>",
    }
    # Room for the number behind the longest bar.
    failures = {**_counts("failures"), "range": [0, 1.15 * keys[0].failures]}
    return _by_name([bar], names, xaxis=failures, showlegend=False)


def _by_name(data: list[Figure], names: Sequence[str], **more: Any) -> Figure:
    """A chart with a name beside each row, the first one on top, and what a phone has instead.

    Rows are numbered: two names may look alike once they are cut.
    """
    labels = [_label(name, _LONGEST) for name in names]
    for rows in data:
        rows["customdata"] = [labels[at] for at in rows["y"]]
    axis = {
        "autorange": "reversed",
        "zeroline": False,
        "tickvals": list(range(len(names))),
        "ticktext": labels,
        "ticklabelstandoff": 6,
    }
    on_phone = [_label(name, _LONGEST_ON_PHONE) for name in names]
    return {"data": data, "layout": _layout(yaxis=axis, **more), "onPhone": on_phone}


def _label(name: str, longest: int) -> str:
    """A name as plotly shows it: it knows few entities, and takes these for markup."""
    shown = in_middle(visible(name), longest)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _counts(title: str) -> Figure:
    return {"title": {"text": title}, "tickformat": ",d"}


def _part(title: str, numbers: Sequence[int], marker: Figure) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "x": list(numbers),
        "y": list(range(len(numbers))),
        "marker": marker,
        "hovertemplate": "%{customdata}: %{x:,} messages<extra>%{fullData.name}</extra>",
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
