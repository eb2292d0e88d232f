"""Redrives: judges what is to become of dead letters, and carries it out as a job on a thread.

A job is that of `ackfloor dlq replay` and `discard`: each dead letter once in effect, one job at a
time on a topic, its note in the dispositions topic, so that both see, end and resume each other's.

Invariants. The dead letters that were counted are those that the job gets: what came later is left
out, what was disposed of meanwhile is not sent again. A job is noted before it begins, and does not
begin where that fails. When the console ends, its jobs end after their transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from ackfloor import AckfloorError, SettingError
from ackfloor.cli.shared.run_address import checked_reason
from ackfloor.dead_letters.rules.redrive_jobs import busy_text
from ackfloor.errors import RedriveBusy
from ackfloor.operations import ActionNote, new_note, noted
from ackfloor.operations.noted import end_by_tallies
from ackfloor.redrive import JobNote, Order, Preview, Tally, Wanted, select
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.acting import PROGRAM, by_of
from ackfloor_monitoring.console.acts.first_noted import carrying, writer_of
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.acts.order_forms import MANY
from ackfloor_monitoring.console.acts.redrive_forms import Redrive, read_redrive
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.index.dead_letter_index import DeadLetterIndex, NoIndex
from ackfloor_monitoring.console.index.index_search import Chosen, TooSlow
from ackfloor_monitoring.console.reads.cluster_facts import Cluster

if TYPE_CHECKING:
    from ackfloor.redrive import RedriveJob

#: So many of the chosen dead letters are read to see what would become of them.
TRIED: Final = 500
#: Redrives that are kept: each holds the places of what it means, eight bytes for each.
MOST_KEPT: Final = 50
#: Jobs of this console that may run at once.
MOST_JOBS: Final = 8
#: Seconds that an ending console waits for the transactions of its jobs.
GRACE_S: Final = 15.0


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
    def count(self) -> int:
        """How many are meant."""
        return len(self.chosen)

    @property
    def needs_reason(self) -> bool:
        """Whether it is not done without a reason."""
        return self.count >= MANY or not self.order.sends


@dataclass(slots=True)
class CarriedRedrive:
    """A redrive that was confirmed.

    Attributes:
        tally: how far it is.
        error: why it was not begun, or failed.
        over: whether it has ended.
        stop: set to end it after its transaction.
        thread: runs it.
    """

    judged: JudgedRedrive
    reason: str
    tally: Tally = field(default_factory=Tally)
    error: str = ""
    over: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Redrives:
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "redrive.html"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Where its methods are to be called.
        self.asking = cluster.asking
        self.kept = KeptForms[JudgedRedrive, CarriedRedrive](MOST_KEPT)
        self._beginning = threading.Lock()
        self._ending = False

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
        chosen, left_out = self._chosen(redrive)
        # What the index has left out would be sent as well by whoever resumes the job by its note.
        asked = (
            redrive.asked(chosen.ends, chosen.topic_id) if redrive.places or not left_out else {}
        )
        order = replace(redrive.order(by), asked=asked)
        job = self._job(order, chosen.topic_id)
        some = select(islice(_places(chosen.wanted), TRIED))
        note = new_note(
            redrive.name,
            PROGRAM,
            by,
            targets=[redrive.topic],
            group=redrive.group,
            arguments={
                **redrive.arguments(), "job": order.job, "count": len(chosen), "from": address,
            },
        )  # fmt: skip
        preview, other = job.preview(some), job.active()
        tried = min(TRIED, len(chosen))
        judged = JudgedRedrive(redrive, note, order, chosen, preview, tried, other, left_out)
        self.kept.keep(note.id, judged)
        return judged

    def carry_out(self, judged: JudgedRedrive, reason: str) -> None:
        """Begin it, once.

        Raises:
            SettingError: the reason is missing or too long, or too many jobs run.
        """
        text = checked_reason("reason", " ".join(reason.split()))
        made = CarriedRedrive(judged, text)
        with self._beginning:
            if self.kept.carried(judged.note.id) is not None:
                return
            self._refuse_too_many(judged)
            thread = threading.Thread(
                target=self._run, args=(made,), name=f"console:{judged.order.job}", daemon=True
            )
            made.thread = thread
            thread.start()
            self.kept.begin(judged.note.id, made)

    def _refuse_too_many(self, judged: JudgedRedrive) -> None:
        """Raises SettingError where another job has to end first, or the console ends."""
        running = self.kept.under_way()
        if self._ending or len(running) >= MOST_JOBS:
            why = "the console ends" if self._ending else "so many run in this console"
            raise SettingError("jobs", len(running), why, "try again later")
        for each in running:
            if each.judged.redrive.topic == judged.redrive.topic:
                why = "runs on this topic already"
                raise SettingError("job", each.judged.order.job, why, "wait for its end, or end it")

    def stop(self, judged: JudgedRedrive) -> None:
        """End its job after the transaction under way."""
        if (carried := self.kept.carried(judged.note.id)) is not None:
            carried.stop.set()

    def close(self) -> None:
        """Have the jobs end after their transaction, and begin no other one."""
        with self._beginning:
            self._ending = True
        running = self.kept.under_way()
        for each in running:
            each.stop.set()
        until_s = time.monotonic() + GRACE_S
        for each in running:
            if each.thread is not None:
                each.thread.join(max(0.0, until_s - time.monotonic()))

    def _index(self) -> DeadLetterIndex:
        if self._cluster.index is None:
            raise Refused(404, "this console keeps no index of dead letters")
        return self._cluster.index

    def _chosen(self, redrive: Redrive) -> tuple[Chosen, int]:
        """The dead letters that are meant, and how many the index has left out."""
        try:
            with self._index().searching() as search:
                found = search.chosen(redrive.topic, redrive.query.wanted)
                left_out = search.progress().left_out
        except TooSlow:
            raise Refused(503, "it took too long to find them: narrow the search") from None
        except (NoIndex, LookupError):
            raise Refused(404, f"the index does not know {redrive.topic} yet") from None
        if redrive.places:
            found = replace(found, wanted=select(redrive.places))
        return found, left_out

    def _job(self, order: Order, topic_id: str) -> RedriveJob:
        """Raises AckfloorError where the topic is another one than that which was searched."""
        # The Kafka client is loaded when it is first needed.
        from ackfloor.redrive import RedriveJob

        job = RedriveJob(self._cluster.options(), order)
        if topic_id != job.topics.dlq_id:
            raise AckfloorError(f"{order.dlq} was deleted and created anew: search again")
        return job

    def _free_job(self, judged: JudgedRedrive) -> RedriveJob:
        """Raises RedriveBusy where another job runs on the topic."""
        job = self._job(judged.order, judged.chosen.topic_id)
        if (other := job.active()) is not None:
            raise RedriveBusy(f"nothing was done: {busy_text(judged.order.dlq, other)}")
        return job

    def _run(self, carried: CarriedRedrive) -> None:
        """In its thread: note it, run the job, note how it ended."""
        judged = carried.judged
        with carrying(carried, judged.note):
            write = writer_of(self._cluster, lambda why: setattr(carried, "error", why))
            with noted(replace(judged.note, reason=carried.reason), write, job=True) as ending:
                job = self._free_job(judged)
                carried.tally = job.run(
                    judged.chosen.wanted,
                    progress=lambda tally: setattr(carried, "tally", tally),
                    stopping=carried.stop.is_set,
                )
                end_by_tallies(ending, [carried.tally])


def _places(wanted: Wanted) -> Iterator[tuple[int, int]]:
    for partition, offsets in wanted.items():
        for offset in offsets:
            yield partition, offset
