"""The job as a program: what it prints, and how it ends. Its work is in test_kafka_read.py."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from ackfloor_monitoring.spark import jobs
from ackfloor_monitoring.spark.failures import CauseCount, FailureReport, TopicCount

SEEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPORT = FailureReport(
    "billing",
    (CauseCount("dlq", "bill", "error", "E" * 90, 2, SEEN, SEEN, 7),),
    (TopicCount("orders--billing--dlq", "dlq", 2, 0),),
)
ARGUMENTS = ["--bootstrap-servers", "127.0.0.1:1", "--group", "billing"]


def test_in_a_pipe_nothing_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another program or a file gets has each row on one line, without colours."""
    monkeypatch.delenv("COLUMNS", raising=False)
    jobs._print_tables(REPORT)
    out = capsys.readouterr().out
    assert "E" * 90 in out
    assert "\x1b" not in out


def test_the_width_that_is_asked_for_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """COLUMNS holds in a pipe as well: whoever shows the output elsewhere knows the room."""
    monkeypatch.setenv("COLUMNS", "80")
    jobs._print_tables(REPORT)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_missing_extra_is_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PySpark the program says how to install it; nothing goes to stdout."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    ended = CliRunner().invoke(jobs._app, ARGUMENTS)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.endswith("pip install 'ackfloor[spark]'\n")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ARGUMENTS[:2], [*ARGUMENTS, "-o", "xml"]])
def test_wrong_usage_ends_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing group or address and an unknown output are told before Spark is started."""
    for name in ("ACKFLOOR_BOOTSTRAP_SERVERS", "ACKFLOOR_KAFKA__BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    ended = CliRunner().invoke(jobs._app, arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
