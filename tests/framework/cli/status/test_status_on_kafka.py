"""`ackfloor status` on a real broker: what it counts, what it reads, and what it may not read."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.status import group_look
from ackfloor.core.records.envelope import Reason, write_headers
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.redrive import select
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.kafka.wire import options, produce
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


def status(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the lines."""
    done = CliRunner().invoke(cli, ["status", "-o", "json", *arguments])
    assert done.stdout, done.exception
    return done.exit_code, json.loads(done.stdout)


def about(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """The lines about one thing."""
    return [line for line in lines if line["about"] == what]


def test_causes_waiting_records_and_lag_of_a_group(stage: Stage) -> None:
    """Dead letters that were redriven are left out; those of other causes are not."""
    produce(stage.servers, stage.source, 10, 0)
    stage.bury([(b"k", b"{}", [])] * 4)
    stage.died = stage.died._replace(error_type="shop.NoPrice", failed_at_ms=5)
    stage.bury([(b"k", b"{}", [])] * 2)
    assert stage.job().run(select(stage.places[:3])).sent == 3
    code, lines = status("--group", stage.group)
    assert code == Exit.FAILURE
    newest, older = about(lines, "dlq")
    assert newest["detail"].startswith("bill: 2 dead letters: shop.NoPrice; the last ")
    assert older["detail"].startswith("bill: 1 dead letter: shop.Boom; the last ")
    assert newest["next"].startswith(f"ackfloor dlq show {stage.dlq}/")
    [members] = about(lines, "group")
    assert (members["state"], members["next"]) == ("wrong", "ackfloor doctor")
    [retry] = about(lines, "retry")
    assert retry["detail"] == "0 wait, 3 due"
    [shown] = CliRunner().invoke(cli, newest["next"].split()[1:]).stdout.split("error_type")[1:]
    assert shown.split()[0] == "shop.NoPrice"


def test_it_reads_no_more_than_it_says(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest dead letters of each partition, and the first of what waits."""
    monkeypatch.setattr(group_look, "MOST_DEAD", 3)
    monkeypatch.setattr("ackfloor.cli.status.group_status.MOST_DEAD", 3)
    stage.bury([(b"k", b"{}", [])] * 8, partition=1)
    stage.died = stage.died._replace(error_type="shop.NoPrice", failed_at_ms=5)
    stage.bury([(b"k", b"{}", [])] * 2, partition=1)
    _, lines = status("--group", stage.group)
    first, second, rest = about(lines, "dlq")
    assert (first["count"], second["count"], rest["count"]) == (2, 1, 10)
    assert "causes are those of the newest 3 of each partition" in rest["detail"]


def test_records_behind_are_counted_apart(stage: Stage) -> None:
    """They did not fail: they wait for one that did."""
    due = stage.died._replace(not_before_ms=1, attempt=1)
    behind = stage.died._replace(reason=Reason.BEHIND, not_before_ms=None)
    producer = Producer({"bootstrap.servers": stage.servers})
    for envelope in (due, behind, behind):
        producer.produce(stage.tier, b"{}", headers=write_headers(envelope, []), partition=0)
    assert producer.flush(60) == 0
    _, lines = status("--group", stage.group)
    [retry] = about(lines, "retry")
    assert retry["detail"] == "0 wait, 1 due, 2 behind one that failed"
    [late] = about(lines, "overdue")
    assert late["next"] == f"ackfloor retry show {stage.tier}"


def test_a_group_that_is_not_there_is_wrong(stage: Stage) -> None:
    """It may be misspelt."""
    code, lines = status("--group", f"{stage.group}-not")
    assert code == Exit.FAILURE
    assert "nothing is known of group" in about(lines, "group")[0]["detail"]


def test_a_job_that_works_on_a_topic_is_told(stage: Stage) -> None:
    """As long as dead letters are open there; one that was killed is not."""
    stage.bury([(b"k", b"{}", [])] * 4)
    assert stage.job().run(select(stage.places[:1])).sent == 1
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": stage.servers})
    for job, silent_at_ms in (("at-work", now_ms + 600_000), ("killed", now_ms - 1)):
        note = JobNote(
            *(job, "replayed", JobState.RUNNING, "ann@elsewhere", "elsewhere", 1, stage.tier),
            *(1, 4, now_ms, now_ms, silent_at_ms),
        )
        producer.produce(stage.dispositions, note.to_bytes(), note.key, partition=0)
    assert producer.flush(60) == 0
    _, lines = status("--group", stage.group)
    wrong, told = about(lines, "dlq")
    assert (wrong["state"], wrong["count"], told["state"]) == ("wrong", 3, "note")
    assert told["detail"].endswith(
        "job at-work of ann@elsewhere works on its dead letters: 1 of 4 replayed"
    )


def test_when_what_is_open_last_failed_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In retry topics and among dead letters together; not where some of it was not read."""
    waits = stage.died._replace(not_before_ms=1, attempt=1, failed_at_ms=100)
    behind = stage.died._replace(reason=Reason.BEHIND, not_before_ms=None, failed_at_ms=None)
    producer = Producer({"bootstrap.servers": stage.servers})
    for envelope in (waits, behind):
        producer.produce(stage.tier, b"{}", headers=write_headers(envelope, []), partition=0)
    assert producer.flush(60) == 0
    [look] = group_look.looks(options(stage.servers), [stage.group])
    assert look.failed_ms == {stage.source: 100}
    stage.died = stage.died._replace(failed_at_ms=700)
    stage.bury([(b"k", b"{}", [])])
    [look] = group_look.looks(options(stage.servers), [stage.group])
    assert look.failed_ms == {stage.source: 700}
    monkeypatch.setattr(group_look, "MOST_WAITING", 2)
    [look] = group_look.looks(options(stage.servers), [stage.group])
    assert look.failed_ms == {}
