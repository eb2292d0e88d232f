"""The report of Spark in the console: one file, in a frame that has no origin."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ackfloor_monitoring.console import looking_endpoints
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.reads import spark_report
from ackfloor_monitoring.console.reads.spark_report import NoReport, SparkReport
from tests.framework.kafka.wire import until
from tests.monitoring.console.page_text import words
from tests.monitoring.console.served_console import NOWHERE, console_of

PAGE, FILE = "/c/kafka/report", "/c/kafka/report/file"
TEXT = "<!doctype html><title>Failures</title><script>const FIGURES = {}</script>"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def report(tmp_path: Path) -> SparkReport:
    """One that was written two hours ago."""
    file = tmp_path / "failures.html"
    file.write_text(TEXT)
    at_s = file.stat().st_mtime - 7200
    os.utime(file, (at_s, at_s))
    return SparkReport(file)


def test_a_report_is_shown_in_a_frame_without_an_origin(report: SparkReport) -> None:
    """Its script draws its charts; it is no script of the console, whoever opens it how."""
    with console_of(NOWHERE, report=report) as served:
        page = served.ask(PAGE)
        assert page.status == 200
        assert f'src="{FILE}" sandbox="allow-scripts"' in page.text
        assert re.search(r"\b2h(\d+m)?(\d+s)? ago", words(page.text))
        assert "frame-src 'self'" in page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        shown = served.ask(FILE, Sec_Fetch_Dest="iframe")
        assert (shown.status, shown.text) == (200, TEXT)
        policy = shown.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts;")
        assert "allow-same-origin" not in policy + page.text
        assert "default-src 'none'" in policy
        assert "connect-src" not in policy
        assert "frame-ancestors 'self'" in policy
        assert shown.headers["x-content-type-options"] == "nosniff"
        alone = served.ask(FILE, Sec_Fetch_Dest="document")
        assert (alone.status, TEXT in alone.text) == (403, False)


def test_a_viewer_sees_no_report(report: SparkReport) -> None:
    """It has keys of records."""
    with console_of(NOWHERE, report=report, role=Role.viewer) as served:
        page = served.ask(PAGE)
        assert (page.status, "iframe" in page.text) == (200, False)
        assert "a viewer sees none" in words(page.text)
        assert served.ask(FILE, Sec_Fetch_Dest="iframe").status == 403


def test_one_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    """And what was not configured, how it is; once there is one, it is shown."""
    file = tmp_path / "later.html"
    with console_of(NOWHERE) as served:
        assert "start the console with --report FILE" in words(served.ask(PAGE).text)
        assert served.ask(FILE).status == 404
    with console_of(NOWHERE, report=SparkReport(file)) as served:
        asked = words(served.ask(PAGE).text)
        assert f"ackfloor spark report --table TABLE --html {file}" in asked
        assert served.ask(FILE).status == 404
        file.write_text(TEXT)
        assert "iframe" in served.ask(PAGE).text
        assert served.ask(FILE).text == TEXT


@pytest.mark.parametrize(
    "path",
    [
        "/c/kafka/report/file/../../../../etc/passwd",
        "/c/kafka/report/..%2f..%2fetc%2fpasswd",
        "/c/kafka/report/secret.html",
        "/c/kafka/report/file?path=secret.html",
        "/c/other/report/file",
    ],
)
def test_no_request_names_a_file(report: SparkReport, path: str, tmp_path: Path) -> None:
    """There is one, which the operator has named."""
    (tmp_path / "secret.html").write_text("a secret")
    with console_of(NOWHERE, report=report) as served:
        answer = served.ask(path)
    assert answer.text == TEXT if "?" in path else answer.status == 404
    assert "a secret" not in answer.text
    assert "root:" not in answer.text


def test_what_is_no_report_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a pipe that nobody writes, a file without end; the page says so."""
    pipe, large = tmp_path / "pipe", tmp_path / "large.html"
    os.mkfifo(pipe)
    monkeypatch.setattr(spark_report, "MOST_BYTES", 100)
    large.write_bytes(b"x" * 101)
    for path, why in (
        (tmp_path, "it is no file"),
        (pipe, "it is no file"),
        (large, "it has more than"),
    ):
        found = SparkReport(path)
        with pytest.raises(NoReport, match=why):
            found.made_ms()
        with pytest.raises(NoReport, match=f"{why}|directory"):
            found.read()
        with console_of(NOWHERE, report=found) as served:
            assert f"can't be shown: {why}" in words(served.ask(PAGE).text.replace("&#39;", "'"))
            assert served.ask(FILE).status == 404


def test_files_that_are_being_read_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in memory until its reader has it: a slow one counts, against whoever reads."""
    file, tokens = tmp_path / "large.html", tmp_path / "tokens.toml"
    # More than the buffers between the two ends have room for.
    file.write_bytes(b"x" * 24 * 1024 * 1024)
    ann, bob = (
        {"Authorization": f"Bearer {add_token(tokens, f'{name}:reader')}"}
        for name in ("ann", "bob")
    )
    monkeypatch.setattr(looking_endpoints, "EACH_FILES", 1)
    with console_of(NOWHERE, report=SparkReport(file), token_file=tokens) as served:
        slow = served.connection()
        slow.request("GET", FILE, headers=ann)
        answer = slow.getresponse()
        assert answer.status == 200
        refused = served.ask(FILE, **ann)
        assert (refused.status, "ann has 1 files" in refused.text) == (429, True)
        assert served.ask(FILE, **bob).status == 200
        monkeypatch.setattr(looking_endpoints, "MOST_FILES", 1)
        refused = served.ask(FILE, **bob)
        assert (refused.status, "too many files at once" in refused.text) == (503, True)
        assert len(answer.read()) == 24 * 1024 * 1024
        slow.close()
        until(lambda: served.ask(FILE, **ann).status == 200)


def test_a_reader_who_is_gone_makes_room(report: SparkReport) -> None:
    """And one whose file can't be made: neither has it."""
    report.path.write_bytes(b"x" * 24 * 1024 * 1024)
    with console_of(NOWHERE, report=report) as served:
        for _ in range(looking_endpoints.EACH_FILES):
            gone = served.connection()
            gone.request("GET", FILE)
            assert gone.getresponse().status == 200
            gone.close()
        until(lambda: served.ask(FILE).status == 200)
        report.path.unlink()
        for _ in range(looking_endpoints.MOST_FILES + 1):
            assert served.ask(FILE).status == 404
