"""`ackfloor spark report`: what is refused before any work, and what is printed and written."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.report import job
from ackfloor_monitoring.spark.report.page import page
from ackfloor_monitoring.spark.spark_errors import NothingToReport, PageNotWritten
from tests.monitoring.spark.report.samples import REPORT


def invoke(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(spark_app, ["report", "--table", "/nowhere", *arguments])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Instead of Spark: what the job is asked for; it answers with a report made by hand."""
    calls: list[dict[str, Any]] = []

    @contextmanager
    def no_session(name: str) -> Iterator[None]:
        yield None

    def answer(spark: object, table: str, **asked: Any) -> object:
        calls.append({"table": table, **asked})
        return REPORT

    # The package's attribute of this name is the command itself.
    command = import_module("ackfloor_monitoring.spark.cli.report")
    monkeypatch.setattr(command, "spark_session", no_session)
    monkeypatch.setattr(job, "failure_history", answer)
    monkeypatch.setattr(page, "plotly_script", lambda: "PLOTLY")
    for name in ("ACKFLOOR_BOOTSTRAP_SERVERS", "ACKFLOOR_KAFKA__BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return calls


@pytest.mark.parametrize(
    ("text", "why"),
    [("yesterday", "is neither a time nor a duration"), ("2200-01-01", "lies in the future")],
)
def test_bad_since_is_told_before_the_work(
    asked: list[dict[str, Any]], text: str, why: str
) -> None:
    """Spark is not started for it."""
    ended = invoke("--since", text)
    assert (ended.exit_code, asked) == (2, [])
    assert f"{text!r} {why}" in ended.stderr


def test_two_beginnings_are_too_many(asked: list[dict[str, Any]]) -> None:
    """A time and a release are not given together."""
    ended = invoke("--since", "24h", "--since-release", "2.4.0")
    assert (ended.exit_code, asked) == (2, [])
    assert "not both" in ended.stderr


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Its folder is missing, or it is a folder itself."""
    for option in ("--html", "--metrics-file"):
        for file in (tmp_path, tmp_path / "no" / "page.html"):
            ended = invoke(option, str(file))
            assert isinstance(ended.exception, PageNotWritten)
            assert f"{option} {str(file)!r}" in str(ended.exception)
    assert asked == []


def test_the_metrics_are_written_whole(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    """In place of those of the last run, and nothing is left beside them."""
    file = tmp_path / "ackfloor.prom"
    file.write_text("old")
    assert invoke("--metrics-file", str(file)).exit_code == 0
    assert f"ackfloor_spark_report_records {REPORT.totals.records}" in file.read_text()
    assert list(tmp_path.iterdir()) == [file]


def test_json_goes_to_stdout_and_the_page_to_its_file(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    """What another program reads is not mixed with what people are told."""
    file = tmp_path / "page.html"
    ended = invoke(
        "-o", "json", "--html", str(file), "--since-release", "1.1", "--group", "billing"
    )
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout) == json.loads(REPORT.to_json())
    assert file.read_text().startswith("<!doctype html>")
    assert f"wrote {file}" in ended.stderr
    (call,) = asked
    assert (call["group"], call["since"].release, call["clients"]) == ("billing", "1.1", None)


def test_brokers_are_asked_where_a_setting_names_them(asked: list[dict[str, Any]]) -> None:
    """And not where the user says so."""
    assert invoke("--bootstrap-servers", "kafka-1:9092").exit_code == 0
    assert invoke("--bootstrap-servers", "kafka-1:9092", "--no-commits").exit_code == 0
    first, second = asked
    assert first["clients"].consumer["bootstrap.servers"] == "kafka-1:9092"
    assert second["clients"] is None
    assert "Causes" in invoke().stdout


@pytest.mark.parametrize(
    ("every", "beside", "why"),
    [
        ("15m", [], "name it with --html"),
        ("soon", ["--html", "page.html"], "'soon'"),
        ("0s", ["--html", "page.html"], "'0s'"),
    ],
)
def test_bad_rounds_are_refused_before_the_work(
    asked: list[dict[str, Any]], every: str, beside: list[str], why: str
) -> None:
    """Only a page is made again and again, and after a time that can be read."""
    ended = invoke("--every", every, *beside)
    assert ended.exit_code != 0
    assert why in ended.stderr + str(ended.exception)
    assert asked == []


def test_a_signal_asks_for_the_last_page(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also one that comes while a page is made: what was stored since is in the last one."""
    made = job.failure_history

    def interrupted(spark: object, table: str, **asked_for: Any) -> object:
        if not asked:
            os.kill(os.getpid(), signal.SIGTERM)
        return made(spark, table, **asked_for)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "failure_history", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    file = tmp_path / "page.html"
    ended = invoke("--every", "1h", "--html", str(file), "-o", "json")
    assert ended.exit_code == 0, ended.output
    assert len(asked) == 2
    assert asked[0]["made_at"] < asked[1]["made_at"]
    assert json.loads(ended.stdout) == json.loads(REPORT.to_json())
    assert ended.stderr.count(f"wrote {file}") == 2
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_rounds_go_on_while_there_is_nothing_to_report(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A group without a failure gets its page once it has one; the last round says the truth."""
    rounds: list[int] = []

    def nothing(spark: object, table: str, **asked_for: Any) -> object:
        rounds.append(1)
        if len(rounds) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        raise NothingToReport("no failure of group 'billing'")

    monkeypatch.setattr(job, "failure_history", nothing)
    ended = invoke("--every", "1ms", "--html", str(tmp_path / "page.html"))
    assert isinstance(ended.exception, NothingToReport)
    assert len(rounds) == 4
    assert ended.stderr.count("no page yet: no failure of group 'billing'") == 3
