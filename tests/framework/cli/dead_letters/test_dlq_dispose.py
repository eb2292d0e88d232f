"""`ackfloor dlq discard|archive|export` on a real broker: hidden, kept, never deleted."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dead_letter_archive import DeadLetterArchive
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.dead_letters.kafka import redrive_job
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from tests.framework.kafka.wire import recreate
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Four dead letters, one with bytes that are no text, and one of another tool."""
    stage.bury([(b"k%d" % n, b'{"card": "4711"}', [("own", b"1")]) for n in range(3)])
    stage.bury([(b"\xff", b"\x00\xff", [("own", b"\xfe"), ("none", None)])])
    stage.bury([(b"foreign", b"x", [("h", b"1")])], foreign=True)
    return stage


def dlq(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(dlq_app, list(arguments))


def lines(text: str) -> list[dict[str, object]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_discarded_is_hidden_and_goes_nowhere(stage: Stage) -> None:
    """Not before it is confirmed; it stays in its topic, and `--all` shows it."""
    dry = dlq("discard", stage.dlq, "--key", "k1", "--dry-run")
    assert f"{stage.dlq}: 1 would be discarded" in dry.stdout
    unasked = dlq("discard", stage.dlq, "--key", "k1")
    assert (unasked.exit_code, "confirm with --yes" in unasked.stderr) == (2, True)
    assert len(json.loads(dlq("ls", stage.dlq, "-o", "json").stdout)) == 5
    done = dlq("discard", stage.dlq, "--key", "k1", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"{stage.dlq}: 1 discarded\n")
    [note] = stage.notes().values()
    assert (note["disposition"], note["target"]) == ("discarded", "")
    assert len(json.loads(dlq("ls", stage.dlq, "-o", "json").stdout)) == 4
    replayed = dlq("replay", stage.dlq, "--key", "k1", "--yes")
    assert (replayed.exit_code, stage.read(stage.tier)) == (0, [])
    assert "1  left out: replayed, discarded or archived before" in replayed.stdout
    assert len(stage.read(stage.dlq)) == 5
    rest = json.loads(dlq("discard", stage.dlq, "--yes", "-o", "json").stdout)
    assert (rest[0]["discarded"], rest[0]["left"]) == (4, {"disposed": 1})


@pytest.mark.parametrize("command", ["discard", "archive"])
def test_what_nobody_calls_a_dead_letter_is_left_alone(stage: Stage, command: str) -> None:
    """A source topic given by mistake; another tool's is hidden, and what the user calls so."""
    producer = Producer({"bootstrap.servers": stage.servers})
    theirs, plain = stage.topic("orders.DLT"), stage.topic("orders.failed")
    producer.produce(plain, b"v", partition=0)
    producer.produce(stage.source, b"v", b"k", headers=[("h", b"1")], partition=0)
    producer.produce(theirs, b"v", headers=[("kafka_dlt-original-topic", b"orders")], partition=0)
    assert producer.flush(60) == 0
    file, other = ([], []) if command == "discard" else (["--file", "ours"], ["--file", "theirs"])
    for more in (["--yes"], ["--dry-run"]):
        refused = dlq(command, stage.source, *file, *more)
        assert isinstance(refused.exception, RedriveRefused)
        assert "1 of 1 records have no header" in str(refused.exception)
        assert "say --foreign" in str(refused.exception)
    assert dlq(command, theirs, *other, "--yes").exit_code == 0
    assert dlq(command, stage.source, *file, "--foreign", "--yes").exit_code == 0
    assert "has no dead letter in" in str(dlq("show", f"{stage.source}/0/0").exception)
    assert "no header calls a dead letter" in dlq("show", f"{plain}/0/0").stderr
    assert "no header calls" not in dlq("show", f"{theirs}/0/0").stderr


def test_an_export_is_whole(stage: Stage) -> None:
    """Text as text, bytes as base64, what our headers say by name; nothing is noted."""
    ended = dlq("export", stage.dlq)
    found = {(row["partition"], row["offset"]): row for row in lines(ended.stdout)}
    assert (set(found), "5 dead letters" in ended.stderr) == (set(stage.places), True)
    text, binary = found[stage.places[0]], found[stage.places[3]]
    assert (text["key"], text["value"], text["handler"]) == ("k0", '{"card": "4711"}', "bill")
    assert text["headers"] == [{"name": "own", "value": "1"}]
    assert binary["key_base64"] == base64.b64encode(b"\xff").decode()
    assert binary["value_base64"] == base64.b64encode(b"\x00\xff").decode()
    assert binary["headers"] == [
        {"name": "own", "value_base64": base64.b64encode(b"\xfe").decode()},
        {"name": "none", "value": None},
    ]
    assert len(lines(dlq("export", stage.dlq, "--key", "k1").stdout)) == 1
    assert stage.dispositions not in stage.admin.list_topics(timeout=60).topics


def test_what_is_archived_is_in_the_file_first(stage: Stage, tmp_path: Path) -> None:
    """In parts, into one file, each once; then hidden, with the file as its target."""
    file = tmp_path / "archive.jsonl"
    first = dlq("archive", stage.dlq, "--file", str(file), "--max", "2", "--yes")
    assert (first.exit_code, first.stdout) == (0, f"{stage.dlq} to {file}: 2 archived\n")
    # As a job leaves it that was killed between the file and the note, and one in a line.
    kept = file.read_text()
    more = dlq("export", stage.dlq).stdout.splitlines(keepends=True)
    file.write_text(kept + more[0] + more[1][:20])
    rest = dlq("archive", stage.dlq, "--file", str(file), "--yes")
    assert (rest.exit_code, "3 archived" in rest.stdout) == (0, True)
    found = [(row["partition"], row["offset"]) for row in lines(file.read_text())]
    assert sorted(found) == sorted(map(tuple, stage.places))
    said = {(note["disposition"], note["target"]) for note in stage.notes().values()}
    assert (said, len(stage.notes())) == ({("archived", str(file))}, 5)
    assert json.loads(dlq("ls", stage.dlq, "-o", "json").stdout) == []


def test_redaction_reaches_files(stage: Stage, tmp_path: Path) -> None:
    """What it takes away is neither exported nor archived, and that is said."""
    rules = '[redaction]\nkey = "hash"\nfields = ["card"]\nheaders = ["own"]\n'
    (tmp_path / "ackfloor.toml").write_text(rules)
    exported = dlq("export", stage.dlq, "--key", "k1")
    file = tmp_path / "archive.jsonl"
    archived = dlq("archive", stage.dlq, "--key", "k1", "--file", str(file), "--yes")
    assert "what [redaction] takes away will not be in the file" in archived.stderr
    for text in (exported.stdout, file.read_text()):
        [row] = lines(text)
        assert row["value"] == '{"card": "***"}'
        assert row["headers"] == [{"name": "own", "value": "***"}]
        assert "4711" not in text
        assert "k1" not in text


def test_a_file_that_is_no_archive_is_not_touched(stage: Stage, tmp_path: Path) -> None:
    """Something else, another topic's, a folder: refused before anything is noted."""
    for content in (
        '{"topic": "another", "partition": 0, "offset": 1}\n',
        "hello\n",
        "hello",
        "[]\n",
    ):
        file = tmp_path / "file"
        file.write_text(content)
        ended = dlq("archive", stage.dlq, "--file", str(file), "--yes")
        assert isinstance(ended.exception, RedriveRefused)
        assert "name a new file" in str(ended.exception)
        assert file.read_text() == content
    folder = dlq("archive", stage.dlq, "--file", str(tmp_path), "--yes")
    assert "not a file" in str(folder.exception)
    dry = dlq("archive", stage.dlq, "--file", str(tmp_path / "new"), "--dry-run")
    assert (dry.exit_code, (tmp_path / "new").exists()) == (0, False)
    assert len(json.loads(dlq("ls", stage.dlq, "-o", "json").stdout)) == 5


def test_a_full_disk_notes_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in the file is not disposed of."""

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ackfloor.dead_letters.commands.dead_letter_archive.os.fsync", full)
    ended = dlq("archive", stage.dlq, "--file", str(tmp_path / "a"), "--yes")
    assert (ended.exit_code, "No space left on device" in ended.stdout) == (1, True)
    assert stage.notes() == {}


def test_the_file_of_an_earlier_topic_is_no_place_for_letters(stage: Stage, tmp_path: Path) -> None:
    """Others lie at the same places: they would be hidden, and be in no file."""
    file = str(tmp_path / "archive.jsonl")
    assert dlq("archive", stage.dlq, "--file", file, "--yes").exit_code == 0
    recreate(stage.servers, stage.dlq)
    stage.bury([(b"new%d" % n, b"v", []) for n in range(8)], partition=0)
    refused = dlq("archive", stage.dlq, "--file", file, "--yes")
    assert (refused.exit_code, "name a new file" in refused.stdout) == (1, True)
    assert len(json.loads(dlq("ls", stage.dlq, "-o", "json").stdout)) == 8
    assert dlq("archive", stage.dlq, "--file", f"{file}.new", "--yes").exit_code == 0
    assert len(lines(Path(f"{file}.new").read_text())) == 8


def test_letters_are_kept_once(tmp_path: Path) -> None:
    """However often a batch is given."""
    letter = DeadLetter("t", 0, 7, b"k", b"v", [], 1)
    with DeadLetterArchive(tmp_path / "a", "t", Redaction()) as archive:
        archive.keep([letter])
        archive.keep([letter])
    assert len(lines((tmp_path / "a").read_text())) == 1


def test_a_discard_that_was_ended_is_resumed_by_its_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own command: it discards what was asked for then, once, and sends nothing."""
    monkeypatch.setattr(redrive_job, "BATCH", 1)
    send = RedriveJob._send

    def ends(job: RedriveJob, batch: list[DeadLetter]) -> None:
        send(job, batch)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as ending:
        ending.setattr(RedriveJob, "_send", ends)
        stopped = dlq("discard", stage.dlq, "--header", "own=1", "--yes", "-o", "json")
    [told] = json.loads(stopped.stdout)
    assert (told["discarded"], told["remaining"]) == (1, 2)
    assert told["resume"] == f"ackfloor dlq discard {stage.dlq} --resume {told['job']} --yes"
    stage.bury([(b"later", b"v", [("own", b"1")])])
    name = ("--resume", told["job"], "--yes")
    refused = dlq("replay", stage.dlq, *name)
    assert f"to go on, ackfloor dlq discard {stage.dlq} --resume" in str(refused.exception)
    more = dlq("discard", stage.dlq, *name, "--key", "k1")
    assert (more.exit_code, "the job says what is meant" in more.output) == (2, True)
    done = dlq("discard", stage.dlq, *name)
    assert (done.exit_code, f"{stage.dlq}: 2 discarded\n" in done.stdout) == (0, True), done.output
    assert (len(stage.notes()), stage.read(stage.tier)) == (3, [])
    [job] = json.loads(dlq("jobs", stage.dlq, "-o", "json").stdout)
    assert (job["job"], job["state"], job["done"], job["of"]) == (told["job"], "done", 3, 3)
    sent = dlq("replay", stage.dlq, "--key", "later", "--yes", "-o", "json")
    other = dlq("discard", stage.dlq, "--resume", json.loads(sent.stdout)[0]["job"])
    assert "to go on, ackfloor dlq replay" in str(other.exception)
