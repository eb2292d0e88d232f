"""The page's sections on failures: a heading, how to read it, a chart, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ackfloor_monitoring.spark.report.answer import FailureGroup, Report
from ackfloor_monitoring.spark.report.formatting import (
    RECOVERED_NOTE,
    UNKNOWN_NOTE,
    cause_name,
    count,
    days_note,
    far_note,
    healed,
    in_middle,
    moment,
    owner,
    percent,
    since_text,
    some,
    source,
    stretch,
)
from ackfloor_monitoring.spark.report.page import charts
from ackfloor_monitoring.spark.report.page.charts import Figures
from ackfloor_monitoring.spark.report.page.markup import (
    bar,
    chart,
    details,
    section,
    sparkline,
    table,
    tables,
    text,
)

# What is on the page; the JSON has all of it.
_MOST_ROWS = 15
_ROOM_FOR_CAUSES, _ROOM_FOR_NEW = 700_000, 400_000
_LONGEST_RELEASE = 40
_CAUSE_NOTE = (
    "Times are in UTC. A cause is the error's fingerprint (its class and the first place in your "
    "code); where a record has none, its class or its reason."
)


def when(report: Report, figures: Figures) -> str:
    """Failures over time, by handler and by reason."""
    figures["by-handler"] = charts.over_time(
        report, lambda bucket: owner(bucket.group, bucket.handler, report)
    )
    figures["by-reason"] = charts.over_time(report, lambda bucket: bucket.reason or "not named")
    return section(
        "when",
        "When did it fail?",
        f"Failed deliveries in each {stretch(report)}. A message that fails three times counts "
        "three times.",
        "<h3>By handler</h3>",
        chart("by-handler", 340, "failures over time by handler"),
        "<h3>By reason</h3>",
        chart("by-reason", 340, "failures over time by reason"),
    )


def causes(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """Groups of failures by fingerprint."""
    lead = (
        "Failures with the same error at the same place in the code are one cause. The trend has "
        f"a column for each {stretch(report)} of the whole period. Healed are, of the dead letters "
        "that were replayed, those that recovered."
    )
    return section(
        "causes",
        "What failed?",
        lead,
        _groups_table(report.failure_groups, report, "more cause", _ROOM_FOR_CAUSES),
    )


def new(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """What was not there before."""
    what = f"Causes first seen since {since_text(report)}."
    body = "<p>None.</p>"
    if report.new:
        body = _groups_table(report.new, report, "more new cause", _ROOM_FOR_NEW)
    return section("new", "What is new?", what, body)


def _groups_table(groups: Sequence[FailureGroup], report: Report, more: str, room: int) -> str:
    heads = (
        "Cause",
        "Trend",
        "First and last seen",
        "Releases",
        "Share",
        "Failures",
        "Dead",
        "Healed",
    )
    rows = [
        (
            _cause(group, report),
            sparkline(group.trend),
            _seen(group),
            text(", ".join(_release(each) for each in group.releases[-4:]) or "-"),
            bar(group.share) + text(percent(group.share)),
            count(group.failures),
            count(group.dead),
            text(healed(group, report)),
        )
        for group in groups
    ]
    return tables(heads, rows, more, numbers=4, room=room)


def _release(name: str) -> str:
    return in_middle(name, _LONGEST_RELEASE) or '""'


def _seen(group: FailureGroup) -> str:
    first, last = (text(moment(time)) for time in (group.first, group.last))
    return f'<span class="time">{first}<br>{last}</span>'


def _cause(group: FailureGroup, report: Report) -> str:
    sample = group.sample
    where = f"{sample.topic}, partition {sample.partition}, offset {sample.offset}"
    message = sample.error_message or ""
    cut = message if len(message) <= 160 else message[:159] + "…"
    return (
        f"<b>{text(cause_name(group))}</b> in {text(owner(group.group, group.handler, report))}"
        f'<div class="message">{text(cut)}</div>'
        f'<div class="where">{text(group.cause)}; latest: {text(where)}</div>'
    )


def hot(report: Report, figures: Figures) -> str:
    """Keys and partitions that fail more than others."""
    return section(
        "hot",
        "Which keys and partitions?",
        "Keys with the most failures, and source partitions furthest above the average of their "
        "topic. A hot key makes its partition hot.",
        *(_keys(report, figures) if report.hot_keys else ()),
        "<h3>Partitions</h3>",
        _partitions(report),
    )


def _keys(report: Report, figures: Figures) -> tuple[str, ...]:
    figures["keys"] = charts.hot_keys(report)
    height = 80 + 30 * min(len(report.hot_keys), 12)
    heads = ("Key", "Topic", "Failures", "Messages", "Dead", "Share")
    rows = [
        (
            text(key.key),
            text(source(key.group, key.topic, report)),
            *map(count, (key.failures, key.messages, key.dead)),
            text(percent(key.share)),
        )
        for key in report.hot_keys[:_MOST_ROWS]
    ]
    numbers = details("The numbers", table(heads, rows, numbers=4))
    return chart("keys", height, "the keys with the most failures"), numbers


def _partitions(report: Report) -> str:
    heads = ("Partition", "Failures", "Messages", "Times average")
    rows = [
        (
            text(f"{source(each.group, each.topic, report)}, {each.partition}"),
            count(each.failures),
            count(each.messages),
            f"{each.times_average:.2f}",
        )
        for each in report.hot_partitions[:10]
    ]
    return table(heads, rows, numbers=3)


def notes(report: Report, figures: Figures) -> str:  # noqa: ARG001
    """What the numbers are."""
    totals = report.totals
    counted = (
        f"The table has {count(totals.records)} records: {count(totals.failures)} failed "
        f"deliveries, {count(totals.hops)} further waits of explicit delays, "
        f"{count(totals.replays)} replays."
    )
    if totals.behind:
        counted += (
            f" {count(totals.behind)} did not fail: they wait, or were given up, behind a record "
            'of their key (reason "behind" or "held").'
        )
    notes = [
        counted,
        RECOVERED_NOTE if report.commits_known else UNKNOWN_NOTE,
        _CAUSE_NOTE,
    ]
    if totals.unreadable:
        notes.append(
            f"{some(totals.unreadable, 'record')} with headers that could not be read, counted "
            "with what could be."
        )
    if report.far_records:
        notes.append(far_note(report, len(report.far)))
    if report.failure_groups_left_out:
        notes.append(f"{some(report.failure_groups_left_out, 'rarer cause')} left out.")
    if report.days_kept:
        notes.append(days_note(report))
    items = "".join(f"<li>{text(each)}</li>" for each in notes)
    return section(
        "notes", "How to read this", "What is counted, and what is not.", f"<ul>{items}</ul>"
    )
