"""Selections that a job keeps on a real broker: whoever goes on has them all, and no other ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.commands.dlq_replay import Replay, part_of, resumed
from ackfloor.dead_letters.commands.redriving import Part
from ackfloor.dead_letters.commands.selection import DeadLetterSelection, Places
from ackfloor.dead_letters.kafka import redrive_job
from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics
from ackfloor.dead_letters.kafka.redrive_job import RedriveJob
from ackfloor.dead_letters.rules import kept_selections
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.dispositions import Disposed, Disposition
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.redrive import JobState, Order, select
from tests.framework.kafka.wire import options
from tests.redrive_stage import Stage

pytestmark = pytest.mark.kafka


class Killed(BaseException):
    """Ends a process: it signs nothing off."""


@pytest.fixture
def stage(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Twenty dead letters in both partitions; a part of a selection has three, a batch two."""
    monkeypatch.setattr(kept_selections, "PART", 3)
    monkeypatch.setattr(redrive_job, "BATCH", 2)
    made = Stage(bootstrap_servers)
    made.bury([(b"k%d" % n, b"v", []) for n in range(20)])
    return made


def job_of(stage: Stage, action: Disposition = Disposition.REPLAYED) -> RedriveJob:
    """A job that keeps what it is about."""
    to = "retry" if action is Disposition.REPLAYED else ""
    asked = Replay(
        Places(stage.dlq), DeadLetterFilter(), to, None, 5, action=action, selection_kept=True
    )
    order = Order(stage.dlq, to, "job", "ann", action=action, asked=asked.to_dict())
    return RedriveJob(options(stage.servers), replace(order, keeps_selection=True))


def kill(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    places: list[tuple[int, int]],
    action: Disposition,
) -> None:
    """Begin a job, and end its process when the selection is written, before the first is done."""

    def killed(_job: RedriveJob, _batch: list[DeadLetter]) -> None:
        raise Killed

    with monkeypatch.context() as ending:
        ending.setattr(RedriveJob, "_send", killed)
        ending.setattr(RedriveJob, "_sign_off", lambda _job: None)
        with pytest.raises(Killed):
            job_of(stage, action).run(select(places))


def resume(stage: Stage, by: str) -> Part:
    """The job as somebody goes on with it, who has read its note and its selection."""
    found = options(stage.servers)
    reading = DeadLetterSelection(found, DeadLetterTopics(found), Redaction())
    order, asked = resumed(reading, stage.dlq, "job", by)
    return part_of(reading, order, asked, foreign=True)


def selections(stage: Stage) -> Disposed:
    """What the topic of the dispositions says."""
    disposed = Disposed()
    for message in stage.read(stage.dispositions):
        disposed.note(message.key(), message.value())  # type: ignore[arg-type]
    return disposed


@pytest.mark.parametrize("action", [Disposition.REPLAYED, Disposition.DISCARDED])
def test_a_job_killed_before_its_first_is_resumed_by_three(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, action: Disposition
) -> None:
    """All read the same note: each dead letter once and no other one, and its figures are exact."""
    meant = stage.places[3:17]
    kill(stage, monkeypatch, meant, action)
    assert (stage.read(stage.tier), stage.notes()) == ([], {})
    first, second, third = (resume(stage, by) for by in ("bob", "eve", "dan"))
    assert first.wanted == second.wanted == select(meant)
    told: list[int] = []
    stopped = first.job.run(
        first.wanted, progress=lambda tally: told.append(tally.sent), stopping=lambda: bool(told)
    )
    assert (stopped.sent, stopped.remaining) == (2, 12)
    assert (second.job.run(second.wanted).sent, third.job.run(third.wanted).sent) == (12, 0)
    assert sorted(stage.notes()) == sorted(f"{p}/{o}" for p, o in meant)
    assert {each["job"] for each in stage.notes().values()} == {"job"}
    if action is Disposition.REPLAYED:
        assert stage.sent_once() == 14
    else:
        assert stage.read(stage.tier) == []
    [note] = third.job.jobs()
    assert (note.state, note.done, note.wanted) == (JobState.DONE, 14, 14)
    assert (selections(stage).selections, selections(stage).unreadable) == ({}, 0)


def test_a_selection_that_its_topic_does_not_take_is_refused(stage: Stage) -> None:
    """Before anything is sent, and nobody is told to go on with a job that nobody knows."""
    limits = {"cleanup.policy": "compact", "max.message.bytes": "100"}
    stage.topic(stage.dispositions, **limits)
    job = job_of(stage)
    tally = job.run(stage.everything())
    assert (tally.sent, job.is_noted) == (0, False)
    assert "allows no record as large as a part of this selection" in tally.stopped
    assert "raise its max.message.bytes" in tally.stopped
    assert (stage.read(stage.tier), stage.read(stage.dispositions)) == ([], [])
    stage.allow(stage.dispositions, 1_000_000)
    again = job_of(stage)
    assert again.run(stage.everything()).sent == 20
    assert (again.is_noted, stage.sent_once()) == (True, 20)
