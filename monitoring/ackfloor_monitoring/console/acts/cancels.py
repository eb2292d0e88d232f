"""Cancels: ends a job that redrives or disposes of dead letters, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.operations import ActionNote, noted
from ackfloor.redrive import JobNote
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import (
    by_of,
    carrying,
    confirmed,
    console_note,
    writer_of,
)
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.reads.cluster_facts import Cluster


@dataclass(frozen=True, slots=True)
class JudgedCancel:
    """A job that somebody wants to end.

    Attributes:
        note: as which that would be noted; its id names it.
        job: as it was when it was asked for.
    """

    note: ActionNote
    topic: str
    job: JobNote

    @property
    def needs_reason(self) -> bool:
        """Somebody else may have begun it."""
        return True


@dataclass(slots=True)
class CarriedCancel:
    """One that was confirmed.

    Attributes:
        job: as it ended; None until then, and where that failed.
        error: why it was not ended, or that is not noted.
        over: whether it was carried out.
    """

    job: JobNote | None = None
    error: str = ""
    over: bool = False


class Cancels:
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "cancel.html"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self.kept = KeptForms[JudgedCancel, CarriedCancel]()

    def searches(self, form: Fields) -> bool:  # noqa: ARG002 -- desks are alike
        """Whether judging a form reads as much as a search: the follower has the jobs."""
        return False

    def judge(self, form: Fields, person: Person, address: str) -> JudgedCancel:
        """Which job is meant; nothing is done.

        Raises:
            Refused: there is none.
        """
        topic, name = form.get("topic"), form.get("job")
        jobs = self._cluster.index.follower.jobs if self._cluster.index is not None else {}
        job = next((each for each in jobs.get(topic, ()) if each.job == name), None)
        parsed = parse_topic(topic)
        if job is None or parsed is None:
            raise Refused(404, f"no job {name!r} of {topic!r}: the page of jobs has them all")
        note = console_note(
            "dlq cancel",
            by_of(person),
            address,
            target=topic,
            group=parsed.group,
            arguments={"job": name},
        )
        judged = JudgedCancel(note, topic, job)
        self.kept.keep(note.id, judged)
        return judged

    def carry_out(self, judged: JudgedCancel, reason: str, address: str) -> None:
        """End the job, once; raises SettingError for a reason that is too long."""
        # The Kafka client is loaded when it is first needed.
        from ackfloor.dead_letters.kafka.redrive_cancel import cancelled

        text = checked_reason("reason", " ".join(reason.split()))
        made = CarriedCancel()
        if not self.kept.begin(judged.note.id, made):
            return
        begun = confirmed(judged.note, text, address)
        with carrying(made, begun):
            write = writer_of(self._cluster, lambda why: setattr(made, "error", why))
            with noted(begun, write, job=True) as ending:
                options = self._cluster.options()
                made.job = cancelled(options, judged.topic, judged.job.job, begun.by)
                ending.counts = {"done": made.job.done, "wanted": made.job.wanted}

    def stop(self, judged: JudgedCancel, reason: str, address: str) -> None:
        """There is nothing to end: it takes seconds."""
