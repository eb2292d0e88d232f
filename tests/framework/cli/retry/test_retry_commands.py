"""`ackfloor retry ls|show` on a real broker: what is open in retry topics, and when it is due."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from ackfloor.cli.retry.retry_commands import retry_app
from ackfloor.core.acks.gap_set import GapSet, encode, topic_hash
from ackfloor.core.records.envelope import Reason, write_headers
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.kafka.topics.topic_ids import TopicIds
from ackfloor.live.retry_requests import PATH
from ackfloor.operations import ActionFilter, ActionLog, ActionState
from ackfloor.operations.runs import Runs
from tests.compatibility.cases import FOLLOWER, HELD
from tests.framework.kafka.wire import fresh, options
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka

LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Six records in partition 0 of the first tier: three due for long, three in a day."""
    later_ms = time.time_ns() // 1_000_000 + 86_400_000
    producer = Producer({"bootstrap.servers": stage.servers})
    for n in range(6):
        due_ms = LONG_AGO_MS + n * 1_000 if n < 3 else later_ms + n * 1_000
        parked = stage.died._replace(
            origin_offset=n, attempt=n, reason=Reason.ERROR, not_before_ms=due_ms
        )
        headers = write_headers(parked, [("own", b"1")])
        producer.produce(stage.tier, b'{"card": 1}', b"k%d" % n, headers=headers, partition=0)
    assert producer.flush(60) == 0
    return stage


def retry(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(retry_app, list(arguments))


def rows(*arguments: str) -> list[dict[str, object]]:
    """What it prints as JSON."""
    ended = retry(*arguments, "-o", "json")
    assert ended.exit_code == 0, ended.output
    found: list[dict[str, object]] = json.loads(ended.stdout)
    return found


def settle(stage: Stage, position: int, *runs: tuple[int, int]) -> None:
    """Commit as a worker of the group does."""
    ids = TopicIds(options(stage.servers))
    topic_id = ids.learn([stage.tier])[stage.tier].topic_id
    ids.close()
    gaps = GapSet(position, list(runs), topic_hash(topic_id), 0)
    metadata, _ = encode(gaps, stage.tier, 0)
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    place = TopicPartition(stage.tier, 0, position, metadata=metadata)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def test_tiers_are_counted_by_what_is_due(stage: Stage) -> None:
    """What the group has settled does not count, above the floor neither."""
    first, second = rows("ls", "--group", stage.group)
    assert (first["topic"], first["delay"], first["waiting"], first["due"]) == (
        stage.tier, "1s", 3, 3,
    )  # fmt: skip
    assert first["oldest_due"] == "2023-11-14T22:13:20Z"
    assert (second["delay"], second["waiting"], second["due"], second["next_due"]) == (
        "5s", 0, 0, None,
    )  # fmt: skip
    settle(stage, 1, (3, 5))
    [row] = rows("ls", stage.tier)
    assert (row["waiting"], row["due"], row["oldest_due"]) == (1, 2, "2023-11-14T22:13:21Z")
    assert row["next_due"] == row["last_due"]
    assert [each["key"] for each in rows("show", stage.tier)] == ["k1", "k2", "k5"]
    settle(stage, 6)
    [row] = rows("ls", stage.tier)
    assert (row["waiting"], row["due"]) == (0, 0)


def test_records_are_listed_and_shown(stage: Stage, tmp_path: Path) -> None:
    """Narrowed down as dead letters are; one in full, without what redaction takes away."""
    assert [row["key"] for row in rows("show", stage.tier, "--attempts", "4+")] == ["k4", "k5"]
    # The first one was put back to work: no attempt of it counts.
    assert [row["attempt"] for row in rows("show", stage.tier)] == [None, 1, 2, 3, 4, 5]
    assert "attempt" not in retry("show", f"{stage.tier}/0/0").stdout
    ended = retry("show", stage.tier, "--limit", "2")
    assert "there are more: raise --limit 2" in ended.stderr
    (tmp_path / "ackfloor.toml").write_text('[redaction]\nfields = ["card"]\n')
    text = retry("show", f"{stage.tier}/0/1").stdout
    assert f"{'not_before':<20} 2023-11-14T22:13:21Z" in text
    assert '{"card": "***"}' in text
    facts = json.loads(retry("show", f"{stage.tier}/0/1", "-o", "json").stdout)
    assert (facts["attempt"], facts["payload"]) == (1, '{"card": "***"}')


def test_a_record_is_shown_by_its_place_in_the_source(stage: Stage) -> None:
    """As `lanes ls` and `status` name it: the newest copy; where it is not, what was searched."""
    place = f"{stage.source}/1/3"
    facts = json.loads(retry("show", place, "-o", "json").stdout)
    assert (facts["topic"], facts["partition"], facts["offset"]) == (stage.tier, 0, 3)
    again = stage.died._replace(origin_offset=3, attempt=9, reason=Reason.ERROR)
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(stage.tier, b"", b"k3", headers=write_headers(again, []), partition=0)
    assert producer.flush(60) == 0
    assert json.loads(retry("show", place, "-o", "json").stdout)["offset"] == 6
    other = stage.tier.replace(stage.group, f"{stage.group}2")
    stage.topic(other)
    producer.produce(other, b"", b"k3", headers=write_headers(again, []), partition=0)
    assert producer.flush(60) == 0
    settle(stage, 3)
    for arguments, text in (
        ((place,), f"waits in retry topics of the groups {stage.group}, {stage.group}2; name one"),
        ((place.removesuffix("/3") + "/0",), f"/0 waits in none of {stage.tier}"),
        ((f"{fresh('none')}/0/1",), "is no retry topic, and has none; `ackfloor retry ls`"),
        ((f"{fresh('none')}/0/1", "--group", stage.group), f"has none of group {stage.group}; "),
    ):
        ended = retry("show", *arguments)
        assert isinstance(ended.exception, RedriveRefused), ended.output
        assert text in str(ended.exception)
    assert retry("show", place, "--group", stage.group).exit_code == 0


@pytest.fixture
def quarantined(stage: Stage) -> Stage:
    """Behind the six two records of their keys, and the note of one that is dead-lettered."""
    producer = Producer({"bootstrap.servers": stage.servers})
    for n, told in enumerate((FOLLOWER, FOLLOWER, HELD)):
        parked = told._replace(
            origin_topic=stage.source, group=stage.group, origin_offset=10 + n,
            not_before_ms=LONG_AGO_MS,
        )  # fmt: skip
        headers = write_headers(parked, [])
        producer.produce(stage.tier, b"b", b"k%d" % n, headers=headers, partition=0)
    assert producer.flush(60) == 0
    return stage


def test_what_waits_behind_another_record_is_not_due(quarantined: Stage) -> None:
    """Its wait in the retry topic is over for long; it is not late, and it did not fail."""
    row, _ = rows("ls", "--group", quarantined.group)
    assert (row["waiting"], row["due"], row["behind"]) == (3, 3, 3)
    shown = rows("show", quarantined.tier, "--reason", "behind")
    assert [(each["failed"], each["due"], each["error"]) for each in shown] == [(None,) * 3] * 2
    held = retry("show", quarantined.tier, "--reason", "held")
    assert "held" in held.stdout
    assert not {"1970", "None", "2023"} & set(held.stdout.replace("-", " ").split())


@pytest.mark.parametrize(
    ("command", "meant", "told"),
    [
        ("promote", 6, "3 wait behind another one of their key, and are left"),
        ("bury", 8, "1 are in the dead-letter topic, and are left"),
    ],
)
def test_what_waits_behind_another_record_is_not_delivered_before_it(
    quarantined: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    meant: int,
    told: str,
) -> None:
    """It is not sent to a run, whether it is named or one of all; and how many is said."""
    asked: list[list[int]] = []

    def post(
        _: Runs, path: str, body: dict[str, Any], *unreached: dict[str, str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        assert (path, unreached, body["action"]) == (PATH, ({}, {}), command)
        asked.append(body["places"]["0"])
        yield "run", {"count": len(asked[-1]), "workers": {"silent": []}}

    monkeypatch.setattr(Runs, "post", post)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("t" * 32)
    run = ("--yes", "--listen", "127.0.0.1:1", "--token-file", str(token))
    ended = retry(command, quarantined.tier, "--because", "the bank is back", *run)
    assert (ended.exit_code, asked) == (0, [list(range(meant))])
    assert told in ended.stderr
    assert f"{quarantined.tier}: {meant} of {meant} " in ended.stdout
    log = ActionLog(options(quarantined.servers))
    [note] = log.newest(ActionFilter(group=quarantined.group), 10)
    assert (note.action, note.targets, note.reason) == (
        f"retry {command}", (quarantined.tier,), "the bank is back",
    )  # fmt: skip
    assert (note.state, note.counts) == (ActionState.DONE, {"done": meant, "meant": meant})
    named = retry(command, f"{quarantined.tier}/0/8", *run)
    assert (named.exit_code, len(asked)) == (0, 1)
    assert named.stderr.startswith("1 ")
    assert f"{quarantined.tier}: 0 of 0 " in named.stdout


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("command", ["promote", "bury"])
def test_the_question_names_the_topic_as_it_is(stage: Stage, tmp_path: Path, command: str) -> None:
    """Capitals included; without a yes no run is asked for anything."""
    tier = stage.topic(f"{stage.source}-EU--{stage.group}--retry-1s")
    producer = Producer({"bootstrap.servers": stage.servers})
    producer.produce(tier, b"x", headers=write_headers(stage.died, []))
    assert producer.flush(30) == 0
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("t" * 32)
    ended = CliRunner().invoke(
        retry_app, [command, tier, "--listen", "127.0.0.1:1", "--token-file", str(token)], input="n"
    )
    assert f"{command.capitalize()} 1 records of {tier}?" in ended.stderr
    assert (ended.exit_code, "nothing was done" in ended.stderr) == (2, True)


@pytest.mark.parametrize("command", ["promote", "bury"])
def test_a_record_that_is_named_and_not_open_counts_as_meant(
    stage: Stage, tmp_path: Path, command: str
) -> None:
    """Settled, or never there: "0 of 0" would read as if it were done."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("t" * 32)
    settle(stage, 1)
    ended = retry(
        command, f"{stage.tier}/0/0", f"{stage.tier}/0/99", "--yes",
        "--listen", "127.0.0.1:1", "--token-file", str(token),
    )  # fmt: skip
    assert (ended.exit_code, f"{stage.tier}: 0 of 2 " in ended.stdout) == (1, True)
    assert "2 do not wait in a worker of this run" in ended.stderr


def test_what_is_no_retry_topic_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead-letter topic, a topic that is not there, a place that is not there; no broker."""
    for arguments, text in (
        (["ls", stage.dlq], "is no retry topic of ackfloor"),
        (["show", fresh("none")], "does not exist"),
        (["ls", "--group", f"{stage.group}x"], "has no retry or dead-letter topics here: "),
        (["show", f"{stage.tier}/7/0"], "has no partition 7"),
        (["show", f"{stage.tier}/0/99"], "/0/99 is not there"),
        (["show", f"{stage.tier}/0/5000"], "/0/5000 is not there"),
    ):
        ended = retry(*arguments)
        assert isinstance(ended.exception, RedriveRefused)
        assert text in str(ended.exception)
    monkeypatch.setattr("ackfloor.kafka.client.admin_client.PATIENCE_S", 0.5)
    ended = retry("ls", "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(ended.exception, KafkaUnreachable)


def test_the_list_of_topics_names_the_list_of_keys() -> None:
    """Whose records wait is asked next."""
    told = CliRunner().invoke(retry_app, ["ls", "--help"]).stdout
    assert "`retry groups --by key`" in " ".join(told.split())


def test_groups_say_why_records_wait(stage: Stage) -> None:
    """By handler and cause, and by key; a filter that matches nothing is said."""
    [one] = rows("groups", stage.tier)
    assert (one["handler"], one["error"], one["count"]) == ("bill", "shop.Boom", 6)
    assert str(one["latest"]).startswith(f"{stage.tier}/0/")
    assert "key" not in one
    keys = rows("groups", "--group", stage.group, "--by", "key")
    assert [(each["key"], each["count"]) for each in keys] == [(f"k{n}", 1) for n in range(6)]
    settle(stage, 5)
    assert [each["key"] for each in rows("groups", stage.tier, "--by", "key")] == ["k5"]
    none = retry("groups", stage.tier, "--handler", "shipp")
    assert "nothing has --handler 'shipp'" in none.stderr
