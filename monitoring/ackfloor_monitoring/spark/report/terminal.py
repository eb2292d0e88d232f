"""The report as tables for the terminal, made to fit into 80 columns.

Names in it come from records, so they may hold anything: they are printed as text, never as markup,
and control characters are shown, not sent to the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ackfloor_monitoring.spark.report.answer import FailureGroup, Report
from ackfloor_monitoring.spark.report.formatting import (
    RECOVERED_NOTE,
    UNKNOWN,
    cause_name,
    count,
    days_note,
    for_people,
    in_short,
    moment,
    multiple,
    owner,
    percent,
    period,
    seconds,
    settled,
    since_text,
    source,
    spark,
    stretch,
    title,
    visible,
)

_MOST = 10
_MOST_ROWS = 40


def report_tables(report: Report) -> Iterator[RenderableType]:
    """Everything the page shows, shortened to the largest numbers."""
    report = for_people(report)
    yield _plain(title(report), "bold")
    yield _plain(period(report), "dim")
    for sentence in in_short(report):
        yield _plain(sentence)
    yield from (_when(report), _groups("Causes", report.failure_groups[:_MOST], report))
    if report.new:
        yield _groups(f"New since {since_text(report)}", report.new[:_MOST], report)
    yield from (_funnel(report), _times(report), _keys(report), _partitions(report))
    yield from (_traffic(report), _handlers(report), _replays(report))
    if report.commits_known:
        yield _plain(RECOVERED_NOTE, "dim")
    if report.days_kept:
        yield _plain(days_note(report), "dim")


def _when(report: Report) -> Table:
    totals: Counter[tuple[str, str]] = Counter()
    trends: dict[tuple[str, str], Counter[int]] = {}
    place = {start: at for at, start in enumerate(report.buckets)}
    for each in report.over_time:
        key = (owner(each.group, each.handler, report), each.reason or "not named")
        totals[key] += each.failures
        trends.setdefault(key, Counter())[place[each.start]] += each.failures
    rows = [
        (*key, spark([trends[key][at] for at in range(len(place))], 30), count(number))
        for key, number in totals.most_common(2 * _MOST)
    ]
    heads = ("handler", "reason", f"a {stretch(report)} each", "failures")
    return _table("Over time", heads, rows, numbers=1)


def _groups(title: str, groups: Sequence[FailureGroup], report: Report) -> Table:
    rows = [
        (
            f"{cause_name(group)} in {owner(group.group, group.handler, report)}\n{group.cause}",
            spark(group.trend, 10),
            f"{moment(group.first)}\n{moment(group.last)}",
            percent(group.share),
            count(group.failures),
            count(group.dead),
            _healed(group, report),
        )
        for group in groups
    ]
    heads = ("cause", "trend", "first, last", "share", "failures", "dead", "healed")
    return _table(title, heads, rows, numbers=4)


def _healed(group: FailureGroup, report: Report) -> str:
    if not group.replayed:
        return "-"
    return percent(group.healed / group.replayed) if report.commits_known else UNKNOWN


def _funnel(report: Report) -> Table:
    rows = [
        (
            owner(step.group, step.handler, report),
            str(step.attempt),
            ", ".join(step.tiers) or "-",
            count(step.failed),
            settled(step.recovered, report),
            *map(count, (step.dead, step.waiting + step.unknown)),
        )
        for step in report.funnel
    ]
    open_ones = "waiting" if report.commits_known else "unknown"
    heads = ("handler", "failure", "then waits", "failed", "saved", "dead", open_ones)
    return _table("What each retry saved", heads, rows, numbers=4)


def _times(report: Report) -> Table:
    rows = [
        (owner(row.group, row.handler, report), what, count(number), *map(seconds, spread))
        for row in report.times
        for what, number, spread in (
            ("recovers, at least", row.recovered_messages, row.to_recover_s),
            ("dies", row.dead_messages, row.to_death_s),
        )
        if spread is not None
    ]
    heads = ("handler", "until it", "messages", "p50", "p95", "p99")
    return _table("From the first failure", heads, rows, numbers=4)


def _keys(report: Report) -> Table:
    rows = [
        (
            each.key,
            source(each.group, each.topic, report),
            count(each.failures),
            count(each.messages),
            percent(each.share),
        )
        for each in report.hot_keys[:_MOST]
    ]
    heads = ("key", "topic", "failures", "messages", "share")
    return _table("Hot keys", heads, rows, numbers=3)


def _partitions(report: Report) -> Table:
    rows = [
        (
            source(each.group, each.topic, report),
            str(each.partition),
            count(each.failures),
            f"{each.times_average:.2f}",
        )
        for each in report.hot_partitions[:_MOST]
    ]
    heads = ("topic", "partition", "failures", "times average")
    return _table("Hot partitions", heads, rows, numbers=3)


def _traffic(report: Report) -> Table:
    rows = [
        (
            source(each.group, each.topic, report),
            count(each.input),
            count(each.tier_records),
            multiple(each.multiple),
        )
        for each in report.traffic
    ]
    heads = ("topic", "input", "retry records", "per input")
    return _table("Retry traffic", heads, rows, numbers=3)


def _handlers(report: Report) -> Table:
    rows = [
        (
            owner(each.group, each.handler, report),
            *map(count, (each.errors, each.timeouts, each.duplicates)),
            *(("-",) * 3 if each.duration_s is None else map(seconds, each.duration_s[:3])),
        )
        for each in report.handlers
    ]
    heads = ("handler", "errors", "timeouts", "doubles", "p50", "p95", "p99")
    return _table("Failed calls, the slowest handler first", heads, rows, numbers=6)


def _replays(report: Report) -> Table:
    rows = [
        (
            owner(each.group, each.handler, report),
            count(each.replayed),
            settled(each.recovered, report),
            *map(count, (each.dead, each.waiting + each.unknown)),
        )
        for each in report.replays
    ]
    open_ones = "waiting" if report.commits_known else "unknown"
    heads = ("handler", "replayed", "recovered", "dead again", open_ones)
    return _table("Replays", heads, rows, numbers=4)


def _table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int
) -> Table:
    table = Table(
        title=_plain(title, "bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for at, head in enumerate(heads):
        if at >= len(heads) - numbers:
            table.add_column(head, justify="right", no_wrap=True)
        else:
            table.add_column(head, overflow="fold")
    every = list(rows)
    for row in every[:_MOST_ROWS]:
        table.add_row(*map(_plain, row))
    if len(every) > _MOST_ROWS:
        table.caption = _plain(f"{count(len(every) - _MOST_ROWS)} more in the JSON", "dim")
        table.caption_justify = "left"
    return table


def _plain(value: str, style: str = "") -> Text:
    return Text(visible(value), style=style)
