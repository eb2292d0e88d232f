"""The failure report as tables for people, made to fit into 80 columns.

Names in it come from records, so from anywhere: they are printed as text, never as markup, and
control characters are shown, not sent to the terminal.
"""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ackfloor_monitoring.spark.failures import CauseCount, FailureReport

_STAGES = {"dlq": "Dead letters", "retry": "Retries"}


def failure_tables(report: FailureReport) -> list[Table]:
    """What died and what was retried, by cause, and the records by topic."""
    made = [
        _causes(f"{title} of group {report.group}: {report.records(stage):,}", causes)
        for stage, title in _STAGES.items()
        if (causes := [cause for cause in report.causes if cause.stage == stage])
    ]
    return [*made, _topics(report)]


def _causes(title: str, causes: list[CauseCount]) -> Table:
    days = {seen.date() for each in causes for seen in (each.first_seen, each.last_seen)}
    one_day = len(days) == 1
    table = _table(title)
    table.add_column("handler", overflow="fold")
    table.add_column("reason", no_wrap=True)
    table.add_column("error", overflow="fold")
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("highest\nattempt", justify="right")
    table.add_column(f"seen (UTC)\n{min(days)}" if one_day else "seen (UTC)", no_wrap=True)
    for cause in causes:
        attempt = None if cause.max_attempt is None else str(cause.max_attempt)
        table.add_row(
            _name(cause.handler),
            _name(cause.reason),
            _name(cause.error_type),
            f"{cause.records:,}",
            _name(attempt),
            _seen(cause, one_day=one_day),
        )
    return table


def _seen(cause: CauseCount, *, one_day: bool) -> str:
    form, gap = ("%H:%M:%S", " ") if one_day else ("%Y-%m-%d %H:%M:%S", "\n")
    first, last = (seen.strftime(form) for seen in (cause.first_seen, cause.last_seen))
    return first if first == last else f"{first} to{gap}{last}"


def _topics(report: FailureReport) -> Table:
    table = _table(f"Retry and dead-letter topics of group {report.group}")
    table.add_column("topic", overflow="fold")
    table.add_column("records", justify="right", no_wrap=True)
    with_unreadable = any(topic.unreadable_records for topic in report.topics)
    if with_unreadable:
        table.add_column("with unreadable\nheaders", justify="right")
    for topic in report.topics:
        row = [topic.topic, f"{topic.records:,}"]
        if with_unreadable:
            row.append(f"{topic.unreadable_records:,}")
        table.add_row(*row)
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )


def _name(value: str | None) -> Text:
    if value is None:
        return Text("-", style="dim")
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in value))
