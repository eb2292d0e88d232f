"""Panels: what a dashboard is made of; `work` and `trouble` have ours, `grafana` writes them.

Every expression keeps to what is scraped, so the dashboard needs no rules. `$s` stands for the
selection of job and group, `$h` and `$t` for it with the handlers and topics chosen. Several
workers and runs may tell of the same partition: its gauges are read as the largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Where several runs or workers say the same thing, one of them counts.
ONE = "without (instance, pod, worker)"


@dataclass(frozen=True, slots=True)
class Target:
    """One expression, and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        text: what it says and what to look for.
        unit: Grafana's name of it.
        kind: `timeseries`, `stat` or `table`.
        width: of 24.
        red_from: a stat is red from here on.
    """

    title: str
    text: str
    targets: tuple[Target, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    red_from: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that belong together; folded rows are loaded when they are opened."""

    title: str
    panels: tuple[Panel, ...]
    folded: bool = False


def graph(
    title: str, text: str, *targets: Target, unit: str = "short", stacked: bool = False
) -> Panel:
    """Lines over time."""
    return Panel(title, text, targets, unit, stacked=stacked)


def table(title: str, text: str, *targets: Target) -> Panel:
    """The newest values, a line for each series."""
    return Panel(title, text, targets, kind="table")


def stat(title: str, text: str, expr: str, unit: str = "short", red: float | None = None) -> Panel:
    """One number."""
    return Panel(title, text, (Target(expr),), unit, "stat", 4, red_from=red)


def quantiles(metric: str, labels: str) -> tuple[Target, ...]:
    """Three quantiles of a histogram, told apart by these labels."""
    rate = f"sum by (le, {labels}) (rate({metric}_bucket{{$h}}[$__rate_interval]))"
    return tuple(
        Target(f"histogram_quantile({q}, {rate})", f"{_named(labels)} p{q * 100:g}")
        for q in (0.5, 0.95, 0.99)
    )


def rate(metric: str, by: str, selection: str = "$h") -> str:
    """How often a counter counts in a second, by these labels."""
    return f"sum by ({by}) (rate({metric}{{{selection}}}[$__rate_interval]))"


def rated(metric: str, by: str = "handler", legend: str = "", selection: str = "$h") -> Target:
    """The same as lines that are called by these labels, and by what is said of them."""
    return Target(rate(metric, by, selection), f"{_named(by)} {legend}".rstrip())


def by_topic(metric: str, selection: str = "$t", legend: str = "") -> Target:
    """The sum of a gauge of partitions, a line for each topic."""
    expr = f"sum by (topic) (max {ONE} ({metric}{{{selection}}}))"
    return Target(expr, f"{{{{topic}}}} {legend}".rstrip())


def _named(labels: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
