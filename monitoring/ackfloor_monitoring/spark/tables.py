"""The failure report as tables for people.

Names in it come from records, so from anywhere: they are printed as text, never as markup, and
control characters are shown, not sent to the terminal.
"""

from __future__ import annotations

from datetime import date

from rich.table import Table
from rich.text import Text

from ackfloor_monitoring.spark.failures import CauseCount, FailureReport

_STAGE_STYLE = {"dlq": "red", "retry": "yellow"}


def failure_tables(report: FailureReport) -> list[Table]:
    """What failed by cause, and the records by topic."""
    return [_causes(report), _topics(report)]


def _causes(report: FailureReport) -> Table:
    dlq, retry = report.records("dlq"), report.records("retry")
    days = {seen.date() for each in report.causes for seen in (each.first_seen, each.last_seen)}
    table = Table(
        title=f"Failures of group {report.group}: {_count(dlq, 'dead letter', 'dead letters')}, "
        f"{_count(retry, 'retry', 'retries')}",
        caption=_clock_note(days),
        title_justify="left",
        caption_justify="left",
    )
    for name in ("stage", "handler", "reason", "error"):
        table.add_column(name, overflow="fold")
    for name in ("records", "attempt"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("first seen", "last seen"):
        table.add_column(name, no_wrap=len(days) < 2)
    for number, each in enumerate(report.causes):
        if number and report.causes[number - 1].stage != each.stage:
            table.add_section()
        table.add_row(*_cause_row(each, "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S"))
    return table


def _cause_row(cause: CauseCount, clock: str) -> list[Text]:
    return [
        _stage(cause.stage),
        _name(cause.handler),
        _name(cause.reason),
        _name(cause.error_type),
        Text(f"{cause.records:,}"),
        _name(None if cause.max_attempt is None else str(cause.max_attempt)),
        Text(cause.first_seen.strftime(clock)),
        Text(cause.last_seen.strftime(clock)),
    ]


def _topics(report: FailureReport) -> Table:
    table = Table(title="Records by topic", title_justify="left")
    table.add_column("stage")
    table.add_column("topic", overflow="fold")
    table.add_column("records", justify="right", no_wrap=True)
    with_unreadable = any(topic.unreadable_records for topic in report.topics)
    if with_unreadable:
        table.add_column("with unreadable headers", justify="right")
    for topic in report.topics:
        row = [_stage(topic.stage), Text(topic.topic), Text(f"{topic.records:,}")]
        if with_unreadable:
            row.append(Text(f"{topic.unreadable_records:,}"))
        table.add_row(*row)
    return table


def _clock_note(days: set[date]) -> str:
    attempt = "attempt: the highest seen; times are UTC"
    return f"{attempt}, of {min(days)}" if len(days) == 1 else attempt


def _stage(stage: str) -> Text:
    return Text(stage, style=_STAGE_STYLE.get(stage, ""))


def _name(value: str | None) -> Text:
    if value is None:
        return Text("unknown", style="dim italic")
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in value))


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
