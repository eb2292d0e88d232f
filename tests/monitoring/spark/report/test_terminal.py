"""The report in the terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.terminal import report_tables
from tests.monitoring.spark.report.samples import FAR, REPLAYED_UNKNOWN, REPORT, UNKNOWN
from tests.monitoring.spark.report.worst_report import WORST


def printed(report: Report, width: int) -> str:
    """What a terminal of this width shows."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for part in report_tables(report):
            console.print(part)
    return capture.get()


def test_it_fits_into_80_columns() -> None:
    """No line is longer, and the numbers are whole."""
    lines = printed(REPORT, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[-4:] == ["20", "11", "1", "3"] for line in lines)


def test_names_are_printed_as_they_are() -> None:
    """Markup and control characters in them reach the terminal as text."""
    told = printed(REPORT, 300)
    assert "<img src=x onerror=alert(1)>\\x1b[31m" in told
    assert "\x1b" not in told


def test_records_with_a_wrong_clock_are_named() -> None:
    """Three of them, and how many more."""
    told = " ".join(printed(FAR, 200).split())
    assert "13 records with a time far from all others" in told
    assert "30 Dec 2089 00:00" in told
    assert "; and 10 more." in told


def test_it_says_what_was_kept_of_days() -> None:
    """At its end, where anything was."""
    assert "kept" not in printed(REPORT, 200)
    told = " ".join(printed(replace(REPORT, days_counted=1, days_kept=29), 200).split())
    assert "Counts of 29 days were kept by earlier reports, 1 day counted now." in told


def test_all_sections_are_there() -> None:
    """The same parts as on the page."""
    told = printed(REPORT, 200)
    for title in (
        "Over time", "Causes", "New since 3 Mar 2026 00:00", "What each retry saved",
        "From the first failure", "Hot keys", "Hot partitions", "Retry traffic", "Failed calls",
        "Replays", "bound from above",
    ):  # fmt: skip
        assert title in told


def test_what_is_not_known_is_not_called_waiting() -> None:
    """Without commits the column has another name, and the note says what to do."""
    told = printed(UNKNOWN, 200)
    assert "waiting" not in told
    assert "unknown" in told
    assert "--bootstrap-servers" in told


def test_without_commits_no_replay_is_said_to_have_failed() -> None:
    """Of those that did not die again nobody knows; each number that commits tell is "?"."""
    told = printed(REPLAYED_UNKNOWN, 200)
    rows = [line.split() for line in told.splitlines()]
    assert "Of 6 replayed dead letters 1 died again; of 5 it is not known whether" in told
    assert "0.0 %" not in told
    assert ["billing", "/", "bill", "6", "?", "1", "5"] in rows
    assert any(row[-4:] == ["20", "?", "1", "14"] for row in rows)
    assert any(row[-3:] == ["40", "2", "?"] for row in rows)


def test_names_and_rows_are_bounded() -> None:
    """However many and however long they are: the JSON has them all."""
    lines = printed(WORST, 100).splitlines()
    assert len(lines) < 5_000
    assert "x00" * 200 not in "".join(lines)
    assert any("more in the JSON" in line for line in lines)
