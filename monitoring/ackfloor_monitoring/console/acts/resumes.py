"""Resumes: goes on with a job that redrives or discards, and that has ended before its end.

It is what `ackfloor dlq replay --resume` and `dlq discard --resume` do: the job's note says what it
was asked for, and what has been dealt with is not dealt with again. A job that edited what it sent
can't be resumed by its note, unless it keeps the edit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.dlq_replay import (
    Replay,
    job_of,
    noted_arguments,
    part_of,
    resumed,
)
from ackfloor.dead_letters.commands.selection import DeadLetterSelection
from ackfloor.dead_letters.kafka.redrive_notes import state_of
from ackfloor.dead_letters.rules.redrive_jobs import busy_text
from ackfloor.errors import RedriveBusy, RedriveRefused
from ackfloor.operations import ActionNote
from ackfloor.redrive import Disposition, JobNote, JobState, Order, Wanted, parse_rate
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import by_of, console_note
from ackfloor_monitoring.console.acts.job_desk import JobDesk
from ackfloor_monitoring.console.acts.redrive_forms import LONGEST
from ackfloor_monitoring.console.forms import Fields

if TYPE_CHECKING:
    from ackfloor.redrive import RedriveJob


@dataclass(frozen=True, slots=True)
class JudgedResume:
    """A job that somebody wants to go on.

    Attributes:
        note: as which that would be noted; its id names it.
        ended: the job's own note, as it was when it was asked for.
        target: where the rest would go.
        rate: at most so many, such as "50/s"; "" for no limit.
    """

    note: ActionNote
    topic: str
    ended: JobNote
    target: str
    rate: str

    @property
    def job(self) -> str:
        """Its name."""
        return self.ended.job

    @property
    def sends(self) -> bool:
        """Whether it redrives them; else it discards them."""
        return self.ended.action == Disposition.REPLAYED

    @property
    def needs_reason(self) -> bool:
        """Somebody has ended it, or it was killed."""
        return True


class Resumes(JobDesk[JudgedResume]):
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "resume.html"

    def judge(self, form: Fields, person: Person, address: str) -> JudgedResume:
        """Which job is meant, and whether it can go on; nothing is done.

        Raises:
            SettingError: it is no rate.
            Refused: the topic is no dead-letter topic.
            RedriveBusy: it runs, or another one does on its topic.
            AckfloorError: it can't go on, or no broker answers.
        """
        topic, name, rate = form.get("topic"), form.get("job"), form.get("rate").strip()[:LONGEST]
        parsed = parse_topic(topic)
        if parsed is None or parsed.kind != "dlq":
            raise Refused(404, f"{topic!r} is no dead-letter topic: the page of jobs has them all")
        if rate:
            parse_rate(rate)
        by, reading = by_of(person), self._reading()
        order, asked = resumed(reading, topic, name, by)
        job = job_of(reading, order, asked)
        ended = _refuse_busy(job, topic)
        rate = rate if order.sends else ""
        note = console_note(
            "dlq replay" if order.sends else "dlq discard",
            by,
            address,
            target=topic,
            group=parsed.group,
            arguments={**noted_arguments(asked, rate or None, name), "job": name},
        )
        judged = JudgedResume(note, topic, ended, job.topics.target.topic, rate)
        self.kept.keep(note.id, judged)
        return judged

    def _begun(self, judged: JudgedResume) -> tuple[RedriveJob, Wanted]:
        """As it is now: somebody else may have gone on with it meanwhile."""
        reading = self._reading()
        order, asked = self._order(reading, judged)
        _refuse_busy(job_of(reading, order, asked), judged.topic)
        # Who began it has said what kind of topic it is.
        part = part_of(reading, order, asked, foreign=True)
        return part.job, part.wanted

    def _order(self, reading: DeadLetterSelection, judged: JudgedResume) -> tuple[Order, Replay]:
        order, asked = resumed(reading, judged.topic, judged.job, judged.note.by)
        rate_per_s = parse_rate(judged.rate) if judged.rate else None
        return replace(order, rate_per_s=rate_per_s), asked

    def _reading(self) -> DeadLetterSelection:
        # The Kafka client is loaded when it is first needed.
        from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics

        options = self._cluster.options()
        return DeadLetterSelection(options, DeadLetterTopics(options), self._cluster.rules)


def _refuse_busy(job: RedriveJob, topic: str) -> JobNote:
    """The note of a job that can go on.

    Raises:
        RedriveBusy: it runs, or another one does.
        RedriveRefused: it has done all, or its note is gone.
    """
    other = job.active()
    own = next((each for each in job.jobs() if each.job == job.order.job), None)
    if own is None:
        # The dispositions were compacted, or deleted, since the page was loaded.
        why = f"{topic} has no note of job {job.order.job} any more, so nobody can go on with it"
        raise RedriveRefused(f"nothing was done: {why}; ask for a new one")
    running = own if state_of(own) is JobState.RUNNING else other
    if running is not None:
        raise RedriveBusy(f"nothing was done: {busy_text(topic, running)}")
    if own.state is JobState.DONE:
        raise RedriveRefused(f"job {own.job} has done what it was asked for: ask for a new one")
    return own
