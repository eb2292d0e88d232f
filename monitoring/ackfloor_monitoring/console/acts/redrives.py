"""Redrives: judges what is to become of dead letters, and carries it out as a job on a thread.

A job is that of `ackfloor dlq replay` and `discard`: each dead letter once in effect, one job at a
time on a topic, its note in the dispositions topic, so that both see, end and resume each other's.

Invariants. The dead letters that were counted are those that the job gets: what came later is left
out, what was disposed of meanwhile is not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from ackfloor import AckfloorError
from ackfloor.dead_letters.rules.redrive_jobs import busy_text, resuming
from ackfloor.errors import RedriveBusy
from ackfloor.operations import ActionNote
from ackfloor.redrive import JobNote, Order, Preview, Wanted, select
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.first_noted import by_of, console_note
from ackfloor_monitoring.console.acts.job_desk import JobDesk
from ackfloor_monitoring.console.acts.order_forms import MANY
from ackfloor_monitoring.console.acts.redrive_forms import Choice, Redrive, read_redrive
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex, NoIndex
from ackfloor_monitoring.console.index.index_search import Chosen, TooSlow

if TYPE_CHECKING:
    from ackfloor.redrive import RedriveJob

#: So many of the chosen dead letters are read to see what would become of them.
TRIED: Final = 500


@dataclass(frozen=True, slots=True)
class JudgedRedrive:
    """A redrive, and what it would do.

    Attributes:
        note: as which it would be noted; its id names it.
        order: of the job.
        chosen: the dead letters.
        preview: what would become of the first of them.
        tried: how many these are.
        other: a job that runs on this topic; None if there is none.
        left_out: how many open dead letters of the cluster the index has no room for.
    """

    redrive: Redrive
    note: ActionNote
    order: Order
    chosen: Chosen
    preview: Preview
    tried: int
    other: JobNote | None
    left_out: int

    @property
    def topic(self) -> str:
        """The dead-letter topic."""
        return self.redrive.topic

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.order.job

    @property
    def resuming(self) -> str:
        """The command that goes on with the job."""
        return resuming(self.order.dlq, self.order.job, sends=self.order.sends)

    @property
    def count(self) -> int:
        """How many are meant."""
        return len(self.chosen)

    @property
    def needs_reason(self) -> bool:
        """Whether it is not done without a reason."""
        return self.count >= MANY or not self.order.sends


class Redrives(JobDesk[JudgedRedrive]):
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "redrive.html"

    def judge(self, form: Fields, person: Person, address: str) -> JudgedRedrive:
        """What a redrive would do; nothing is done.

        Args:
            person: who asks.
            address: from where.

        Raises:
            SettingError, Refused: the form asks for nothing that can be done.
            AckfloorError: the topic can't be redriven, or no broker answers.
        """
        redrive = read_redrive(form, person, self._index())
        by = by_of(person)
        choice = Choice(redrive.topic, redrive.query, redrive.places, redrive.topic_id)
        chosen, left_out = chosen_of(self._index(), choice)
        # What the index has left out would be meant as well for whoever goes by the filter.
        keeps = not redrive.selects_alike or bool(left_out and not redrive.places)
        asked = redrive.asked(chosen.ends, chosen.topic_id, selection_kept=keeps)
        order = replace(redrive.order(by), asked=asked, keeps_selection=keeps)
        job = self._job(order, chosen.topic_id)
        some = select(islice(_places(chosen.wanted), TRIED))
        note = console_note(
            redrive.name,
            by,
            address,
            target=redrive.topic,
            group=redrive.group,
            arguments={**redrive.arguments(), "job": order.job, "count": len(chosen)},
        )
        preview, other = job.preview(some), job.active()
        tried = min(TRIED, len(chosen))
        judged = JudgedRedrive(redrive, note, order, chosen, preview, tried, other, left_out)
        self.kept.keep(note.id, judged)
        return judged

    def _index(self) -> DeadLetterIndex:
        if self._cluster.index is None:
            raise Refused(404, "this console keeps no index of dead letters")
        return self._cluster.index

    def _job(self, order: Order, topic_id: str) -> RedriveJob:
        """Raises AckfloorError where the topic is another one than that which was searched."""
        # The Kafka client is loaded when it is first needed.
        from ackfloor.redrive import RedriveJob

        job = RedriveJob(self._cluster.options(), order)
        if topic_id != job.topics.dlq_id:
            raise AckfloorError(f"{order.dlq} was deleted and created anew: search again")
        return job

    def _begun(self, judged: JudgedRedrive) -> tuple[RedriveJob, Wanted]:
        """Raises RedriveBusy where another job runs on the topic."""
        job = self._job(judged.order, judged.chosen.topic_id)
        if (other := job.active()) is not None:
            raise RedriveBusy(f"nothing was done: {busy_text(judged.order.dlq, other)}")
        return job, judged.chosen.wanted


def chosen_of(index: DeadLetterIndex, choice: Choice) -> tuple[Chosen, int]:
    """The dead letters that are meant, and how many the index has left out; raises Refused."""
    try:
        with index.searching() as search:
            found = search.chosen(choice.topic, choice.query.wanted)
            left_out = search.progress().left_out
    except TooSlow:
        raise Refused(503, "it took too long to find them: narrow the search") from None
    except (NoIndex, LookupError):
        raise Refused(404, f"the index does not know {choice.topic} yet") from None
    if choice.topic_id not in {"", found.topic_id}:
        # The places of the page are those of other dead letters now.
        raise Refused(409, f"{choice.topic} was deleted and created anew: search again")
    if choice.places:
        found = replace(found, wanted=select(choice.places))
    return found, left_out


def _places(wanted: Wanted) -> Iterator[tuple[int, int]]:
    for partition, offsets in wanted.items():
        for offset in offsets:
            yield partition, offset
