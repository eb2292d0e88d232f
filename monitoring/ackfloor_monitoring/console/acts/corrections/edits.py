"""Edits: one dead letter is redriven with a corrected payload, as a job that keeps the correction.

It is the edit of `ackfloor dlq replay --edit`, with its header and its dry run. Nobody has it in a
file, so the job keeps it until it is sent: it goes on after a restart, here or with `--resume`.

Invariants. Who corrects a dead letter has looked at it, which was noted, and at the difference. The
payload is in no note of the action, and on the page of nobody else; on their own until it is sent,
and no longer than their look lasts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ackfloor import AckfloorError, SettingError
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.dlq_replay import Replay
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.kept_edits import KeptEdit
from ackfloor.dead_letters.rules.redrive_jobs import busy_text
from ackfloor.dead_letters.rules.redrive_rules import MAX_REPLAYS, TO_RETRY, TO_SOURCE, DeadLetter
from ackfloor.errors import RedriveBusy
from ackfloor.operations import ActionNote
from ackfloor.redrive import JobNote, Order, Preview, Wanted, job_name, select
from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.acts.corrections.payload_edits import (
    difference,
    edited_payload,
    fault_of,
    kind_of,
    why_not_editable,
)
from ackfloor_monitoring.console.acts.corrections.reveals import Reveals, content_of
from ackfloor_monitoring.console.acts.first_noted import by_of, console_note
from ackfloor_monitoring.console.acts.job_desk import CarriedJob, JobDesk, JobThreads
from ackfloor_monitoring.console.forms import Fields
from ackfloor_monitoring.console.pages.dead_letter_page import opened

if TYPE_CHECKING:
    from ackfloor.redrive import RedriveJob

#: What the note of the job says of it.
WHAT: Final = "the payload, in the console"


@dataclass(frozen=True, slots=True)
class JudgedEdit:
    """A correction, and what it would do.

    Attributes:
        note: as which it would be noted; its id names it.
        order: of the job, with the corrected payload.
        place: of the dead letter.
        kinds: what the payload is, before and after.
        changes: the lines that differ.
        fault: why it is not to be sent; "" where nothing is known against it.
        preview: what would become of it.
        other: a job that runs on its topic; None if there is none.
        look: the id of the note of the look.
        look_lasts: whether that look lasts.
    """

    note: ActionNote
    order: Order
    kept: KeptEdit
    place: str
    kinds: tuple[str, str]
    changes: Sequence[str]
    fault: str
    preview: Preview
    other: JobNote | None
    look: str
    look_lasts: Callable[[], bool]

    @property
    def topic(self) -> str:
        """The dead-letter topic."""
        return self.order.dlq

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.order.job

    @property
    def text(self) -> str:
        """The corrected payload, to be corrected further."""
        return self.kept.value.decode()

    def shows(self, carried: CarriedJob | None) -> bool:
        """Whether its page may show payloads, which has an address.

        Args:
            carried: what came of it; None where it is not confirmed.
        """
        return self.look_lasts() and (carried is None or not carried.tally.sent)

    @property
    def needs_reason(self) -> bool:
        """What somebody wrote is changed."""
        return True


class Edits(JobDesk[JudgedEdit]):
    """Those of a cluster. Its methods block, and belong to threads of the console."""

    template: Final = "edit.html"

    def __init__(self, reveals: Reveals, threads: JobThreads) -> None:
        super().__init__(reveals.cluster, threads)
        self._reveals = reveals

    def judge(self, form: Fields, person: Person, address: str) -> JudgedEdit:
        """What a correction would do; nothing is done.

        Raises:
            Refused: nobody has looked at the dead letter, or it is another one now.
            SettingError: the payload can't be corrected here, or goes nowhere.
            AckfloorError: the topic can't be redriven, or no broker answers.
        """
        place, by, to = form.get("place"), by_of(person), form.get("to") or TO_RETRY
        seen = form.get("look")
        look = self._reveals.looked_at(seen, by, place)
        if to not in {TO_RETRY, TO_SOURCE}:
            raise SettingError("to", to[:40], "is no target", f"{TO_RETRY} or {TO_SOURCE}")
        found = opened(self._cluster, place)
        if content_of(found.value) != look.content:
            raise Refused(409, "it is another record now: reveal it again")
        before, after = _values(found, form.get("value"))
        job = self._job(Order(found.topic, to, job_name(), by))
        kept = KeptEdit(
            found.partition, found.offset, job.order.job, by, time.time_ns() // 1_000_000, after,
            job.topics.dlq_id,
        )  # fmt: skip
        job.order = replace(job.order, kept=kept, asked=_asked(found, to, kept.topic_id).to_dict())
        note = _note(job.order, place, (len(before), len(after)), seen, address)
        judged = JudgedEdit(
            note,
            job.order,
            kept,
            place,
            (kind_of(before), kind_of(after)),
            difference(before, after),
            fault_of(before, after),
            job.preview(_only(kept)),
            job.active(),
            seen,
            partial(self._reveals.lasts, seen),
        )
        self.kept.keep(note.id, judged)
        return judged

    def carry_out(self, judged: JudgedEdit, reason: str, address: str) -> None:
        """Begin it, once; raises SettingError."""
        if judged.fault:
            raise SettingError("value", judged.place, judged.fault, "correct it, and look again")
        super().carry_out(judged, reason, address)

    def _job(self, order: Order) -> RedriveJob:
        # The Kafka client is loaded when it is first needed.
        from ackfloor.redrive import RedriveJob

        return RedriveJob(self._cluster.options(), order)

    def _begun(self, judged: JudgedEdit) -> tuple[RedriveJob, Wanted]:
        job = self._job(judged.order)
        if job.topics.dlq_id != judged.kept.topic_id:
            raise AckfloorError(f"{judged.topic} was deleted and created anew: look again")
        if (other := job.active()) is not None:
            raise RedriveBusy(f"nothing was done: {busy_text(judged.topic, other)}")
        return job, _only(judged.kept)


def _values(found: DeadLetter, sent: str) -> tuple[bytes, bytes]:
    """The payload as it is and as it is to be; raises SettingError where it can't be edited."""
    before, why = found.value, why_not_editable(found.value)
    if before is None or why:
        fix = "use `ackfloor dlq replay --edit` or `--edit-with`"
        raise SettingError("value", found.place, f"can't be corrected in a browser: {why}", fix)
    return before, edited_payload(before, sent)


def _only(kept: KeptEdit) -> Wanted:
    return select([(kept.partition, kept.offset)])


def _asked(found: DeadLetter, to: str, topic_id: str) -> Replay:
    """What the job's own note says, so that it can be resumed."""
    places = Places(found.topic, select([(found.partition, found.offset)]))
    ends = {found.partition: found.offset + 1}
    return Replay(
        places, DeadLetterFilter(), to, None, MAX_REPLAYS, ends, topic_id, WHAT, edit_kept=True
    )


def _note(order: Order, place: str, sizes: tuple[int, int], look: str, address: str) -> ActionNote:
    """Without the payload, and without a hash of it: that of a short secret can be guessed."""
    parsed = parse_topic(order.dlq)
    return console_note(
        "dlq replay",
        order.by,
        address,
        target=order.dlq,
        group="" if parsed is None else parsed.group,
        arguments={
            "places": [place], "to": order.to, "job": order.job, "count": 1, "edit": WHAT,
            "bytes_before": sizes[0], "bytes_after": sizes[1], "revealed": look,
        },
    )  # fmt: skip
