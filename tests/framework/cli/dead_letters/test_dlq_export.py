"""`ackfloor dlq export`: the same dead letters in each form; and how much of a topic is read."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.commands.export_files import COLUMNS, ExportFormat, written
from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import AckfloorError, RedriveRefused
from tests.redrive_stage import Stage

LETTER = StoredDeadLetter(DeadLetter("t", 0, 7, b"k", None, ()), disposed=False)


def dlq(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(dlq_app, list(arguments))


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Text that is hard to write down, bytes that are no text, and one of another tool."""
    stage.bury([(b'"k",1', 'é,\r\n\n"x"\x00'.encode(), [("own", b"1")])], partition=0)
    stage.bury([(b"\xff", b"\x00\xff", [("own", b"\xfe"), ("none", None)])], partition=0)
    stage.bury([(None, None, [])], foreign=True, partition=1)
    return stage


def read(format_: ExportFormat, file: Path) -> list[dict[str, object]]:
    """The rows of a file."""
    if format_ is ExportFormat.csv:
        return [*csv.DictReader(io.StringIO(file.read_bytes().decode(), newline=""))]
    from pyarrow import parquet

    rows: list[dict[str, object]] = parquet.read_table(file).to_pylist()
    return rows


@pytest.mark.kafka
@pytest.mark.parametrize("format_", [ExportFormat.csv, ExportFormat.parquet])
def test_tables_have_what_the_lines_have(
    stage: Stage, tmp_path: Path, format_: ExportFormat
) -> None:
    """A column for each field, whatever the bytes are."""
    lines = tmp_path / "letters.jsonl"
    assert dlq("export", stage.dlq, "--file", str(lines)).exit_code == 0
    file = tmp_path / "letters"
    done = dlq("export", stage.dlq, "--format", format_, "--file", str(file))
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert "3 dead letters" in done.stderr
    rows = read(format_, file)
    facts = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(facts) == len(rows) == 3
    for row, fact in zip(rows, facts, strict=True):
        fact["headers"] = json.dumps(fact["headers"])
        fact["unreadable"] = "; ".join(fact["unreadable"])
        whole = {name: fact.get(name) for name in COLUMNS}
        if format_ is ExportFormat.csv:
            whole = {name: "" if value is None else str(value) for name, value in whole.items()}
        assert row == whole
    assert sorted(each.name for each in tmp_path.iterdir()) == ["letters", "letters.jsonl"]


@pytest.mark.kafka
def test_csv_goes_to_standard_output_and_parquet_wants_a_file(stage: Stage) -> None:
    """Which is told before anything is read."""
    done = dlq("export", stage.dlq, "--format", "csv", "--partition", "1")
    assert done.stdout.splitlines()[0] == ",".join(COLUMNS)
    assert len(done.stdout.splitlines()) == 2
    refused = dlq("export", stage.dlq, "--format", "parquet")
    assert (refused.exit_code, "name a --file" in refused.stderr) == (2, True)


@pytest.mark.kafka
def test_what_is_read_can_be_bounded(stage: Stage) -> None:
    """By partition, and by number; where there is more, that is told."""
    rows = json.loads(dlq("ls", stage.dlq, "--partition", "0", "-o", "json").stdout)
    assert [row["place"] for row in rows] == [f"{stage.dlq}/0/{n}" for n in range(2)]
    stopped = dlq("ls", stage.dlq, "--scan-limit", "2", "--reason", "crash", "-o", "json")
    assert (json.loads(stopped.stdout), "stopped after 2 were read" in stopped.stderr) == ([], True)
    whole = dlq("ls", stage.dlq, "--scan-limit", "3", "-o", "json")
    assert (len(json.loads(whole.stdout)), "stopped" in whole.stderr) == (3, False)
    missing = dlq("ls", stage.dlq, "--partition", "2")
    assert isinstance(missing.exception, RedriveRefused)
    assert "has no partition 2: it has 2, from 0" in str(missing.exception)
    both = dlq("ls", f"{stage.dlq}/0/1", "--partition", "0")
    assert (both.exit_code, "leave it out" in both.stderr) == (2, True)


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """An export is never added to another, and never takes its place."""
    file = tmp_path / "letters"
    file.write_text("mine")
    with (
        pytest.raises(RedriveRefused, match="is there already; name a new file"),
        written(ExportFormat.csv, file, Redaction()),
    ):
        pass
    assert file.read_text() == "mine"


@pytest.mark.parametrize("format_", ExportFormat)
def test_an_export_that_fails_leaves_no_file(tmp_path: Path, format_: ExportFormat) -> None:
    """Half of one would look like a whole one."""

    def fail() -> None:
        with written(format_, tmp_path / "letters", Redaction()) as writer:
            writer.write(LETTER)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what the system says."""
    file = tmp_path / "no folder" / "letters"
    with (
        pytest.raises(AckfloorError, match="No such file or directory"),
        written(ExportFormat.jsonl, file, Redaction()),
    ):
        pass


def test_without_pyarrow_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes with an extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(RedriveRefused, match=r"pip install 'ackfloor\[spark\]', or take csv"),
        written(ExportFormat.parquet, tmp_path / "letters", Redaction()),
    ):
        pass
    assert [*tmp_path.iterdir()] == []
