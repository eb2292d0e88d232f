"""`ackfloor dlq` on a real broker: what is listed, what is hidden, what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from ackfloor.cli.shared.times import moment
from ackfloor.core.records.envelope import write_headers
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.redrive import select
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka

LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Four dead letters of one cause, two of another, and one of another tool."""
    stage.died = stage.died._replace(error_fingerprint="f00d")
    stage.bury([(b"k%d" % n, b'{"card": "4711"}', [("own", b"\xff")]) for n in range(4)])
    stage.died = stage.died._replace(
        error_type="shop.Bad\x1b[31m", error_fingerprint="bad", failed_at_ms=LONG_AGO_MS
    )
    stage.bury([(None, b"\x00\xff", []), (b"", None, [])], replays=2)
    stage.bury([(b"foreign", b"x", [("h", b"1")])], foreign=True)
    return stage


def dlq(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(dlq_app, list(arguments))


def told(*arguments: str) -> list[dict[str, object]]:
    """What it prints as JSON."""
    ended = dlq(*arguments, "-o", "json")
    assert ended.exit_code == 0, ended.output
    rows: list[dict[str, object]] = json.loads(ended.stdout)
    return rows


def test_groups_are_counted_by_cause(stage: Stage) -> None:
    """Over the topics of a group, or those that are named."""
    for rows in (told("groups", "--group", stage.group), told("groups", stage.dlq)):
        counts = {(row["handler"], row["error"]): row["count"] for row in rows}
        assert counts == {
            ("bill", "shop.Boom"): 4,
            ("bill", "shop.Bad\x1b[31m"): 2,
            ("", "not said"): 1,
        }
    for narrower, left in (
        (["--since", "2023-01-01"], [2, 1]),
        (["--error", "shop.Boom", "--attempts", "7"], [4]),
        (["--handler", "bill", "--until", "2023-01-01"], [4]),
    ):
        assert [row["count"] for row in told("groups", stage.dlq, *narrower)] == left


@pytest.mark.parametrize("command", ["groups", "ls", "export", "replay", "discard"])
def test_a_value_that_nothing_has_is_told_with_those_there_are(stage: Stage, command: str) -> None:
    """A misspelt handler must not look like no dead letters."""
    for option, value, there in (
        ("--handler", "biil", "there is bill"),
        ("--error", "shop.Bom", "there are shop.Boom, "),
        ("--reason", "crash", "there is exhausted"),
        ("--release", "v9", "there are none"),
    ):
        ended = dlq(command, stage.dlq, option, value)
        assert ended.exit_code == 0, ended.output
        assert f"nothing has {option} {value!r}: {there}" in ended.stderr
        assert "\x1b" not in ended.stderr
    ended = dlq(command, stage.dlq, "--handler", "bill", "--error", "Boom", "--key", "none")
    assert "nothing has" not in ended.stderr


def test_the_release_that_failed_is_told(stage: Stage) -> None:
    """Of a group those that failed so, of a letter its own; and it can be asked for."""
    for n, release in enumerate(("v1", "v2", "v3")):
        stage.died = stage.died._replace(
            release=release, error_fingerprint="new", failed_at_ms=LONG_AGO_MS + n
        )
        stage.bury([(release.encode(), b"x", [])])
    groups = {row["cause"]: row["releases"] for row in told("groups", stage.dlq)}
    assert groups["new"] == ["v1", "v2", "v3"]
    assert groups["not said"] == []
    assert "v1 … v3 (3)" in dlq("groups", stage.dlq).stdout
    assert "releases" not in dlq("groups", stage.dlq, "--key", "foreign").stdout
    (row,) = told("ls", stage.dlq, "--release", "v2")
    assert (row["key"], row["release"]) == ("v2", "v2")


def test_what_is_replayed_is_hidden_until_it_is_asked_for(stage: Stage) -> None:
    """And how many those are is told."""
    assert stage.job().run(select(stage.places[:3])).sent == 3
    ended = dlq("groups", stage.dlq)
    assert "3 replayed, discarded or archived: not shown" in ended.stderr
    assert sum(int(str(row["count"])) for row in told("groups", stage.dlq, "--all")) == 7
    assert len(told("ls", stage.dlq)) == 4
    disposed = [row["disposed"] for row in told("ls", stage.dlq, "--all")]
    assert sorted(map(bool, disposed)) == [False] * 4 + [True] * 3


def test_what_was_done_with_one_is_shown(stage: Stage) -> None:
    """What, to where, when, by whom and by which job; of another one nothing."""
    assert stage.job().run(select(stage.places[:1])).sent == 1
    place, other = (f"{stage.dlq}/{partition}/{offset}" for partition, offset in stage.places[:2])
    told_at = stage.notes()["{}/{}".format(*stage.places[0])]["at"]
    done = json.loads(dlq("show", place, "-o", "json").stdout)["disposition"]
    assert done == {
        "disposition": "replayed", "at": f"{told_at[:19]}Z", "by": "me", "job": "job",
        "target": stage.tier,
    }  # fmt: skip
    line = f"{'disposed':<20} replayed to {stage.tier} at {done['at']} by me, job job"
    assert line in dlq("show", place).stdout.splitlines()
    origin = f"{stage.source}/1/0"
    assert f"what came of it: `ackfloor dlq show {origin}`" in dlq("show", place).stderr
    assert "what came of it" not in dlq("show", other).stderr + dlq("show", origin).stderr
    assert json.loads(dlq("show", other, "-o", "json").stdout)["disposition"] is None
    assert "disposed             True" not in dlq("show", other).stdout


def test_what_was_done_with_each_is_listed(stage: Stage, tmp_path: Path) -> None:
    """By `ls --all` and `export --all`; of an open one, and without --all, nothing."""
    assert stage.job().run(select(stage.places[:1])).sent == 1
    discarded = "/".join(map(str, (stage.dlq, *stage.places[1])))
    assert dlq("discard", discarded, "--yes").exit_code == 0
    notes = {f"{stage.dlq}/{place}": note for place, note in stage.notes().items()}
    rows = {row["place"]: row for row in told("ls", stage.dlq, "--all")}
    assert {place for place, row in rows.items() if row["disposition"]} == notes.keys()
    for place, row in rows.items():
        note = notes.get(str(place))
        assert [row[name] for name in row if name.startswith("dispos")] == (
            [False] + [None] * 5
            if note is None
            else [
                *(True, note["disposition"], f"{note['at'][:19]}Z", note["by"], note["job"]),
                note["target"] or None,
            ]
        )
    assert {row["disposed_target"] for row in rows.values()} == {None, stage.tier}
    assert not any(row["disposition"] for row in told("ls", stage.dlq))
    file = tmp_path / "all.jsonl"
    assert dlq("export", stage.dlq, "--all", "--file", str(file)).exit_code == 0
    facts = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(facts) == 7
    for fact in facts:
        row = rows["{topic}/{partition}/{offset}".format(**fact)]
        at_ms = fact["disposed_at_ms"]
        assert row["disposed_at"] == (None if at_ms is None else moment(at_ms))
        for name in ("disposed", "disposition", "disposed_by", "disposed_job", "disposed_target"):
            assert fact[name] == row[name]
    # The lines are still lines that can be corrected; what was done before is left out.
    again = dlq("replay", stage.dlq, "--edit", str(file), "--to", stage.tier, "--dry-run")
    assert (again.exit_code, "5 would be sent" in again.stdout) == (0, True), again.output
    assert "2  left out: replayed, discarded or archived before" in again.stdout


def test_a_table_says_what_was_done_where_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a wide terminal with all of it; in a narrow one at least what and by whom."""
    monkeypatch.setenv("COLUMNS", "300")
    assert "disposed" not in dlq("ls", stage.dlq, "--all").stdout
    assert stage.job().run(select(stage.places[:1])).sent == 1
    at = f"{stage.notes()['{}/{}'.format(*stage.places[0])]['at'][:19]}Z"
    wide = dlq("ls", stage.dlq, "--all").stdout
    assert wide.splitlines()[1].split()[-5:] == ["disposed", "at", "by", "job", "target"]
    (done,) = (line.split() for line in wide.splitlines() if "replayed" in line)
    assert done[-5:] == ["replayed", at, "me", "job", stage.tier]
    assert wide.count(" no ") == 6
    monkeypatch.setenv("COLUMNS", "120")
    narrow = dlq("ls", stage.dlq, "--all")
    (done,) = (line.split() for line in narrow.stdout.splitlines() if "replayed" in line)
    assert "me" in done
    assert "target" in narrow.stderr


def test_one_by_one_they_are_narrowed_down(stage: Stage) -> None:
    """By error, key, reason, handler and time; a limit says that there are more."""
    assert len(told("ls", stage.dlq, "--error", "Boom", "--handler", "bill")) == 4
    (row,) = told("ls", stage.dlq, "--key", "k2", "--reason", "exhausted")
    assert (row["key"], row["attempt"], row["bytes"]) == ("k2", 7, 16)
    assert len(told("ls", stage.dlq, "--until", "1d")) == 6
    ended = dlq("ls", stage.dlq, "--limit", "2")
    assert "there are more: raise --limit 2" in ended.stderr
    assert "\x1b" not in dlq("ls", stage.dlq).stdout


def test_one_is_shown_in_full(stage: Stage) -> None:
    """For people, as JSON, and its payload byte for byte; bytes that are no text as hexadecimal."""
    place = next(str(row["place"]) for row in told("ls", stage.dlq, "--key", "k1"))
    text = dlq("show", place).stdout
    assert f"{'cause':<20} f00d" in text
    for line in (f"{'error_type':<20} shop.Boom", f"{'header':<20} own: 0xff", '{"card": "4711"}'):
        assert line in text
    facts = json.loads(dlq("show", place, "-o", "json").stdout)
    assert (facts["origin_topic"], facts["payload_bytes"]) == (stage.source, 16)
    assert dlq("show", place, "--raw").stdout_bytes == b'{"card": "4711"}'
    (binary,) = [row for row in told("ls", stage.dlq) if row["bytes"] == 2]
    shown = dlq("show", str(binary["place"])).stdout
    assert shown.endswith("0x00ff\n")
    assert "\x1b" not in shown


@pytest.fixture
def again(stage: Stage) -> str:
    """A source record that was redriven and given up again; its place in the source topic."""
    assert stage.job().run(select(stage.places[2:3])).sent == 1
    died = stage.died._replace(origin_offset=2, replays=1, error_type="shop.Still")
    late_ms = time.time_ns() // 1_000_000 + 60_000
    producer = Producer({"bootstrap.servers": stage.servers})
    headers = write_headers(died, [])
    producer.produce(stage.dlq, b"later", headers=headers, partition=1, timestamp=late_ms)
    assert producer.flush(60) == 0
    return f"{stage.source}/1/2"


def test_the_dead_letters_of_a_source_record_are_found(stage: Stage, again: str) -> None:
    """By the place that logs name: the newest first, the redriven one as well."""
    facts = json.loads(dlq("show", again, "-o", "json").stdout)
    assert [(each["error_type"], each["disposed"]) for each in facts] == [
        ("shop.Still", False),
        ("shop.Boom", True),
    ]
    assert {each["origin"] for each in facts} == {again}
    text = dlq("show", again, "--group", stage.group).stdout
    newer, older = text.split("\n2 of 2: ")
    assert newer.startswith(f"1 of 2: {stage.dlq}/1/")
    assert "later" in newer
    assert older.startswith("/".join(map(str, (stage.dlq, *stage.places[2]))))
    refused = dlq("show", again, "--raw")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"has several: give {stage.dlq}/1/" in refused.stderr
    one = f"{stage.source}/1/1"
    assert dlq("show", one, "--raw").stdout_bytes == b'{"card": "4711"}'
    assert dlq("show", one).stdout.startswith(f"{'topic':<20} {stage.dlq}\n")


def test_a_source_record_without_dead_letters_is_told(stage: Stage) -> None:
    """With where it was looked for, and where else it may be."""
    ended = dlq("show", f"{stage.source}/1/999")
    assert isinstance(ended.exception, RedriveRefused)
    assert f"/1/999 has no dead letter in {stage.dlq}: " in str(ended.exception)
    assert f"`ackfloor retry show {stage.source}/1/999`" in str(ended.exception)
    ended = dlq("show", f"{stage.source}/1/2", "--group", f"{stage.group}x")
    assert isinstance(ended.exception, RedriveRefused)
    assert f"of groups that have, there is {stage.group}" in str(ended.exception)


def test_who_lists_a_source_topic_is_told_where_its_dead_letters_are(stage: Stage) -> None:
    """Its records look like dead letters in the table."""
    told = f"{stage.source} is a source topic; its dead letters are in {stage.dlq}"
    assert told in dlq("ls", stage.source).stderr
    assert "source topic" not in dlq("ls", stage.dlq).stderr


def test_a_dead_letter_of_another_tool_that_a_handler_reads_is_shown(stage: Stage) -> None:
    """Its topic is a source topic then; what was redriven to a source topic is no dead letter."""
    producer = Producer({"bootstrap.servers": stage.servers})
    for value, origin in ((b"theirs", "elsewhere"), (b"redriven", stage.source)):
        died = stage.died._replace(origin_topic=origin, origin_offset=700)
        producer.produce(stage.source, value, headers=write_headers(died, []), partition=0)
        assert producer.flush(60) == 0
    assert dlq("show", f"{stage.source}/0/0").stdout.endswith("theirs\n")
    ended = dlq("show", f"{stage.source}/0/1")
    assert "/0/1 has no dead letter" in str(ended.exception)


def test_what_redaction_takes_away_is_not_shown(stage: Stage, tmp_path: Path) -> None:
    """Fields are masked, keys hashed; --raw is refused."""
    rules = '[redaction]\nkey = "hash"\nfields = ["card"]\nheaders = ["own"]\n'
    (tmp_path / "ackfloor.toml").write_text(rules)
    rows = told("ls", stage.dlq, "--error", "Boom")
    assert not {"k0", "k1", "k2", "k3"} & {str(row["key"]) for row in rows}
    place = str(rows[0]["place"])
    text = dlq("show", place).stdout
    assert '{"card": "***"}' in text
    assert f"{'header':<20} own: ***" in text
    assert "4711" not in text
    refused = dlq("show", place, "--raw")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_what_is_not_there_is_told(stage: Stage) -> None:
    """A topic, a partition, an offset; a place that is none; a time that is none."""
    for arguments, text in (
        (["ls", "no-such-topic"], "no-such-topic does not exist"),
        (["groups", "--group", f"{stage.group}x"], "of groups that have, there "),
        (["jobs", "--group", f"{stage.group}x"], "has no retry or dead-letter topics here"),
        (["show", f"{stage.dlq}/9/0"], "has no partition 9: it has 2"),
        (["show", f"{stage.dlq}/0/999"], "/0/999 is not there"),
        (["show", f"{stage.dlq}/0/99999"], "/0/99999 is not there"),
        (["ls", f"{stage.dlq}/0/0", f"{stage.dlq}/0/99999"], "/0/99999 is not there"),
        (["export", f"{stage.dlq}/0/99999"], "/0/99999 is not there"),
    ):
        ended = dlq(*arguments)
        assert isinstance(ended.exception, RedriveRefused)
        assert text in str(ended.exception)
    for arguments, text in (
        (["show", stage.dlq], "TOPIC/PARTITION/OFFSET"),
        (["ls", stage.dlq, "--since", "yesterday"], "neither a time nor a duration"),
        (["ls", stage.dlq, "--since", "1h", "--until", "2h"], "nothing lies between"),
        (["ls", stage.dlq, "--reason", "exausted"], "there are timeout, error, retry,"),
    ):
        ended = dlq(*arguments)
        assert ended.exit_code == 2
        assert text in " ".join(ended.stderr.replace("│", " ").split())


def test_without_a_broker_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a bounded time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ackfloor.kafka.client.admin_client.PATIENCE_S", 0.5)
    ended = dlq("groups", "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(ended.exception, KafkaUnreachable)
