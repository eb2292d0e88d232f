"""Spark's tables in terminals of 80 and 160 columns, and progress that leaves nothing behind."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from rich.console import Console

from ackfloor_monitoring.spark.audit.audit import Fault
from ackfloor_monitoring.spark.audit.audit_job import Audit, FaultRow
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.terminal import report_tables
from ackfloor_monitoring.spark.whatif.terminal import whatif_tables
from tests.framework.cli.command import rest_of
from tests.monitoring.spark.cli.test_whatif import ANSWER
from tests.monitoring.spark.report.samples import REPORT, UNKNOWN

#: Longer than any terminal is wide.
ERROR = "com_company.services.payments.providers.errors.PaymentProviderTemporarilyUnavailable"
LONG = "charge-customer-subscription-renewal-of-the-northern-region"
AUDIT = Audit(
    1_234_567,
    {Fault.REPLAY_NOT_NOTED: 1},
    (
        FaultRow(
            Fault.REPLAY_NOT_NOTED,
            message="orders-of-the-north/117/123456789",
            record="orders-of-the-north--billing--dlq/117/123456",
            group="billing-of-the-north",
            attempt=11,
            replays=3,
        ),
    ),
    ingested_s_ago=192.4,
)
PROGRESS = """
from ackfloor_monitoring.spark.cli.stage_line import stage_line
with stage_line("starting Spark") as show_stage:
    show_stage("counting the failures")
print("the table")
"""


def long_names(report: Report) -> Report:
    """The report with names that fit into no column."""
    causes = [
        replace(each, error_type=ERROR, handler=LONG, failures=12_345_678, dead=1_234_567)
        for each in report.failure_groups
    ]
    handlers = [replace(each, handler=LONG, errors=12_345_678) for each in report.handlers]
    funnel = [replace(each, handler=LONG, failed=12_345_678) for each in report.funnel]
    return replace(report, failure_groups=causes, handlers=handlers, funnel=funnel)


def printed(parts: Any, width: int) -> str:
    """What a terminal of this width shows."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("report", [REPORT, UNKNOWN, long_names(REPORT)])
def test_the_report_fits_and_keeps_each_error(report: Report, width: int) -> None:
    """Names are folded, never cut, and numbers stay in one piece."""
    text = printed(report_tables(report), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for cause in report.failure_groups[:10]:
        name = cause.error_type or cause.cause
        assert name in text.replace("\n", "") or all(part in text for part in name.split("."))
        assert cause.cause in text
        assert f"{cause.failures:,}" in text


@pytest.mark.parametrize("width", [80, 160])
def test_what_if_fits(width: int) -> None:
    """With several handlers, and names that are longer than the line."""
    outcome = replace(ANSWER.total, group=LONG, handler=LONG)
    answer = replace(ANSWER, handlers=(outcome, outcome))
    text = printed(whatif_tables(answer), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


@pytest.mark.parametrize(("width", "whole"), [(80, False), (160, True)])
def test_an_audit_fits_and_keeps_the_fault_and_the_places(
    width: int,
    whole: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """People copy the places into the next command; what has no room is named."""
    monkeypatch.setenv("COLUMNS", str(width))
    import_module("ackfloor_monitoring.spark.cli.audit")._show(AUDIT)
    said = capsys.readouterr()
    [row] = [line for line in said.out.splitlines() if "orders-of-the-north/117" in line]
    found = AUDIT.findings[0]
    assert row.split()[:3] == [found.fault, found.message, found.record]
    assert ("billing-of-the-north" in row) is whole
    assert ("no room for replays, attempt, group" in said.err) is not whole
    assert not whole or len(row) <= width


@pytest.mark.parametrize(
    ("audit", "told"),
    [
        (AUDIT, "what came to Kafka since the newest ingest, 3m12s ago"),
        (Audit(0, {}, ()), "anything, the table is empty"),
    ],
)
def test_an_audit_says_what_was_not_ingested(
    audit: Audit, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table knows what was ingested; people hear how old that is, and how to go on."""
    import_module("ackfloor_monitoring.spark.cli.audit")._show(audit)
    said = capsys.readouterr().err
    assert f"not judged: {told}" in said
    assert "`ackfloor spark ingest --once`" in said


def test_progress_leaves_nothing_in_a_file() -> None:
    """Also where the environment asks for colours, as continuous integration does."""
    env = os.environ | {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRESS], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("the table\n", "")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_progress_is_shown_in_a_terminal_and_goes_again(term: str) -> None:
    """Its last word clears the line; a terminal that can't clear one gets none."""
    master, slave = pty.openpty()
    env = os.environ | {"TERM": term}
    subprocess.run(
        [sys.executable, "-c", PROGRESS], env=env, stdout=subprocess.DEVNULL, stderr=slave,
        check=True,
    )  # fmt: skip
    os.close(slave)
    said = rest_of(master)
    assert ("counting the failures" in said) is (term == "xterm")
    assert said.endswith("\r\x1b[K") is (term == "xterm")
