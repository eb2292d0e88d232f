"""Edits that a job keeps on a real broker: there before anything is sent, gone once it is sent."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest
from confluent_kafka import Producer, TopicPartition

from ackfloor.core.records.envelope import read_envelope
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules.dispositions import Disposition
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.dead_letters.rules.redrive_edit import EditMark, read_mark
from ackfloor.dead_letters.rules.redrive_rules import Left
from ackfloor.errors import RedriveRefused
from ackfloor.redrive import JobState, Order, select
from tests.framework.kafka.wire import options
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka

WANTED = select([(0, 0)])
WAS = hashlib.sha256(b"was").hexdigest()


@pytest.fixture
def stage(bootstrap_servers: str) -> Stage:
    """Two dead letters, one in each partition."""
    made = Stage(bootstrap_servers)
    made.bury([(b"k0", b"was", []), (b"k1", b"other", [])])
    return made


def job_of(stage: Stage, name: str, value: bytes = b"now", offset: int = 0) -> RedriveJob:
    """A job that sends one dead letter of partition 0 corrected."""
    job = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", name, "bob"))
    kept = KeptEdit(0, offset, name, "ann", 1_790_000_000_000, value, job.topics.dlq_id)
    job.order = replace(job.order, kept=kept)
    return job


def stopped(stage: Stage, name: str, value: bytes = b"now") -> None:
    """A job that was ended before it sent anything."""
    tally = job_of(stage, name, value).run(WANTED, stopping=lambda: True)
    assert (tally.sent, tally.stopped) == (0, "it was told to stop")


def test_an_edit_outlives_its_job_and_is_gone_once_it_is_sent(stage: Stage) -> None:
    """Another process goes on with it; the mark names who corrected it, not who went on."""
    stopped(stage, "first")
    [kept] = stage.kept_edits()
    assert (kept.value, kept.job) == (b"now", "first")
    assert stage.read(stage.tier) == []
    again = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", "first", "bob"))
    again.order = replace(again.order, kept=again.kept_edit())
    [note] = again.jobs()
    assert (note.state, note.done, note.wanted) == (JobState.STOPPED, 0, 1)
    assert again.preview(WANTED).edited == 1
    assert again.run(WANTED).sent == 1
    [sent] = stage.read(stage.tier)
    envelope = read_envelope(sent.headers())
    assert (sent.value(), envelope.origin_offset, envelope.replays) == (b"now", 0, 1)
    assert read_mark(envelope.edited or "") == EditMark(WAS, 1_790_000_000_000, "ann")
    assert stage.kept_edits() == []
    assert stage.notes()["0/0"]["by"] == "bob"
    assert again.run(WANTED).left == {Left.DISPOSED: 1}
    assert stage.sent_once() == 1
    assert stage.kept_edits() == []


def test_what_disposes_of_a_dead_letter_deletes_its_edit(stage: Stage) -> None:
    """Its job has nothing to go on with, and says so."""
    stopped(stage, "first")
    discard = Order(stage.dlq, "", "discard", "bob", action=Disposition.DISCARDED)
    assert RedriveJob(options(stage.servers), discard).run(WANTED).sent == 1
    assert stage.kept_edits() == []
    again = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", "first", "bob"))
    with pytest.raises(RedriveRefused, match="keeps no edit any more"):
        again.kept_edit()


def test_a_newer_edit_replaces_the_older_one(stage: Stage) -> None:
    """A dead letter is sent once, as the newest has it; the older job has none."""
    stopped(stage, "first")
    stopped(stage, "second", b"then")
    assert [each.value for each in stage.kept_edits()] == [b"then"]
    first, second = (
        RedriveJob(options(stage.servers), Order(stage.dlq, "retry", name, "bob"))
        for name in ("first", "second")
    )
    with pytest.raises(RedriveRefused, match="job first keeps no edit any more"):
        first.kept_edit()
    assert second.kept_edit().value == b"then"


def test_an_older_edit_does_not_come_back(stage: Stage) -> None:
    """Neither where its job was to go on before the newer one came, nor as a new job."""
    stopped(stage, "first")
    first = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", "first", "bob"))
    first.order = replace(first.order, kept=first.kept_edit())
    later = job_of(stage, "second", b"then")
    assert later.order.kept is not None
    kept = replace(later.order.kept, at_ms=later.order.kept.at_ms + 1)
    later.order = replace(later.order, kept=kept)
    assert later.run(WANTED, stopping=lambda: True).sent == 0
    assert "job first keeps no edit any more" in first.run(WANTED).stopped
    assert "ann has edited 0/0 later, in job second" in job_of(stage, "third").run(WANTED).stopped
    assert [each.value for each in stage.kept_edits()] == [b"then"]
    assert stage.read(stage.tier) == []
    again = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", "second", "bob"))
    again.order = replace(again.order, kept=again.kept_edit())
    assert again.run(WANTED).sent == 1
    assert [each.value() for each in stage.read(stage.tier)] == [b"then"]
    assert stage.kept_edits() == []


def test_an_edit_that_is_of_no_use_is_not_kept(stage: Stage) -> None:
    """Its dead letter is not there."""
    job = job_of(stage, "first", offset=9)
    assert job.run(select([(0, 9)])).left == {Left.GONE: 1}
    assert (stage.kept_edits(), stage.read(stage.tier)) == ([], [])


def test_an_edit_is_deleted_once_its_dead_letter_is_gone(stage: Stage) -> None:
    """By the next job that finds it so, though that has nothing to do and leaves no note."""
    stopped(stage, "first")
    end = TopicPartition(stage.dlq, 0, 1)
    [deleted] = stage.admin.delete_records([end]).values()
    deleted.result(60)
    plain = RedriveJob(options(stage.servers), Order(stage.dlq, "retry", "second", "bob"))
    assert plain.run(WANTED).left == {Left.GONE: 1}
    assert (stage.kept_edits(), stage.read(stage.tier)) == ([], [])
    look = stage.job()
    assert look.active() is None
    assert [each.job for each in look.jobs()] == ["first"]


def test_an_edit_that_was_left_behind_is_deleted(stage: Stage) -> None:
    """Of a dead letter that is disposed of; that of an open one stays."""
    stopped(stage, "first")
    assert stage.job().run(select([(1, 0)])).sent == 1
    [kept] = stage.kept_edits()
    old, writer = replace(kept, partition=1), Producer({"bootstrap.servers": stage.servers})
    writer.produce(stage.dispositions, old.to_bytes(), old.key, partition=1)
    assert writer.flush(60) == 0
    assert len(stage.kept_edits()) == 2
    assert stage.job().run(select([(1, 0)])).left == {Left.DISPOSED: 1}
    assert stage.kept_edits() == [kept]


def test_an_edit_that_can_not_be_kept_is_not_sent(stage: Stage) -> None:
    """It says which topic does not take it."""
    stage.topic(stage.dispositions, **{"cleanup.policy": "compact", "max.message.bytes": "2000"})
    # What a producer can't make smaller.
    tally = job_of(stage, "first", random.Random(7).randbytes(50_000)).run(WANTED)
    assert f"{stage.dispositions} allows no record as large as this edit" in tally.stopped
    assert (tally.sent, stage.read(stage.tier), stage.kept_edits()) == (0, [], [])
