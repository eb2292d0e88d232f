"""The report in plain Python: sums, JSON and tables. No Spark is needed for any of it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from ackfloor_monitoring.spark.failures import CauseCount, FailureReport, TopicCount
from ackfloor_monitoring.spark.tables import failure_tables

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC)
TIER, SLOW_TIER = "orders--billing--retry-1s", "orders--billing--retry-5s"
DLQ = "orders--billing--dlq"

Count = tuple[CauseCount, TopicCount]


def count(
    topic: str,
    records: int,
    error: str | None = "ValueError",
    *,
    attempt: int | None = 1,
    unreadable: int = 0,
    seen: tuple[datetime, datetime] = (NOON, NOON),
) -> Count:
    """One row of what Spark counted."""
    stage = "dlq" if topic == DLQ else "retry"
    cause = CauseCount(stage, "bill", "error", error, records, *seen, attempt)
    return cause, TopicCount(topic, stage, records, unreadable)


def report(*counts: Count) -> FailureReport:
    """The report over these counts, all three topics being there."""
    return FailureReport.from_counts("billing", [TIER, SLOW_TIER, DLQ], counts)


def shown(report: FailureReport, width: int = 100) -> str:
    """The report's tables as a terminal of `width` columns gets them."""
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    for table in failure_tables(report):
        console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def words(text: str, word: str) -> list[str]:
    """The words of the first line that has this one."""
    return next(line.split() for line in text.splitlines() if word in line.split())


def test_a_cause_is_summed_over_its_topics() -> None:
    """Two tiers with the same cause are one row: counts add up, times and attempt span both."""
    earlier, later = NOON - timedelta(hours=1), NOON + timedelta(hours=1)
    (cause,) = report(
        count(TIER, 30, attempt=1, seen=(NOON, NOON)),
        count(SLOW_TIER, 12, attempt=2, seen=(earlier, NOON)),
        count(SLOW_TIER, 1, attempt=None, seen=(NOON, later)),
    ).causes
    assert cause == CauseCount("retry", "bill", "error", "ValueError", 43, earlier, later, 2)


def test_topics_and_causes_add_up_to_the_same() -> None:
    """Both halves are sums of the same counts, and an empty topic is there with 0."""
    made = report(
        count(TIER, 30),
        count(TIER, 5, "KeyError", unreadable=2),
        count(DLQ, 7),
        count(DLQ, 1, None),
    )
    assert made.topics == (
        TopicCount(DLQ, "dlq", 8, 0),
        TopicCount(TIER, "retry", 35, 2),
        TopicCount(SLOW_TIER, "retry", 0, 0),
    )
    for stage in ("retry", "dlq"):
        by_cause = sum(cause.records for cause in made.causes if cause.stage == stage)
        assert made.records(stage) == by_cause


def test_causes_come_most_frequent_first() -> None:
    """Dead letters before retries, then the larger number first, then by name."""
    made = report(
        count(TIER, 90), count(DLQ, 2, None), count(DLQ, 2, "KeyError"), count(DLQ, 3, "Late")
    )
    assert [(cause.stage, cause.error_type) for cause in made.causes] == [
        ("dlq", "Late"),
        ("dlq", None),
        ("dlq", "KeyError"),
        ("retry", "ValueError"),
    ]


def test_json_survives_the_way_there_and_back() -> None:
    """What the job prints is what its caller reads, times with zone and milliseconds included."""
    made = report(count(TIER, 30), count(DLQ, 1, None, attempt=None, unreadable=1))
    assert FailureReport.from_json(made.to_json()) == made
    first = json.loads(made.to_json())["causes"][0]
    assert first["error_type"] is None
    assert first["first_seen"] == "2026-03-01T12:00:00.250Z"


def test_the_table_says_what_failed() -> None:
    """Sums, causes, what is not known, and the day all times belong to."""
    text = shown(report(count(TIER, 1234), count(DLQ, 1, None, attempt=None)))
    dead, retried = text.split("Retries of group billing: 1,234")
    assert "Dead letters of group billing: 1 " in dead
    assert "ValueError" not in dead
    assert words(retried, "ValueError") == ["bill", "error", "ValueError", "1,234", "1", "12:00:00"]
    assert words(dead, "12:00:00") == ["bill", "error", "-", "1", "-", "12:00:00"]
    assert "2026-03-01" in dead
    assert "unreadable" not in text


def test_the_table_of_several_days_has_full_dates() -> None:
    """Times alone would mislead once a report spans midnight."""
    text = shown(report(count(TIER, 2, seen=(NOON, NOON + timedelta(days=1)))), width=140)
    assert "2026-03-01 12:00:00" in text
    assert "2026-03-02 12:00:00" in text


def test_unreadable_headers_are_shown_by_topic() -> None:
    """Where headers could not be read, a column says how many records that concerns."""
    assert "unreadable" in shown(report(count(TIER, 9, unreadable=4)))


def test_names_from_records_can_not_write_to_the_terminal() -> None:
    """Markup is text, and control characters are spelled out."""
    text = shown(report(count(DLQ, 1, "[red]Boom[/red]\x1b]0;title\x07\n")), width=160)
    assert r"[red]Boom[/red]\x1b]0;title\x07\n" in text
    assert "\x1b]0;" not in text


def test_a_narrow_terminal_loses_no_name() -> None:
    """Long names are folded, not cut, at 80 columns."""
    error = "payments.errors.InsufficientFundsForThisParticularOrderError"
    text = shown(report(count(DLQ, 1234567, error, seen=(NOON, NOON + timedelta(days=400)))), 80)
    assert max(map(len, text.splitlines())) <= 80
    pieces = [word for word in text.split() if len(word) > 5 and word in error]
    assert "".join(pieces).endswith(error)
    assert "…" not in text


def test_an_empty_report_is_a_table_too() -> None:
    """A group in which nothing failed yet is good news, not an error."""
    text = shown(report())
    assert words(text, DLQ) == [DLQ, "0"]
    assert "Dead letters of" not in text


def test_reading_a_report_needs_no_pyspark() -> None:
    """Whoever runs the job as a process of its own reads and shows its answer without Spark."""
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "import ackfloor_monitoring.spark.failures, ackfloor_monitoring.spark.tables"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
