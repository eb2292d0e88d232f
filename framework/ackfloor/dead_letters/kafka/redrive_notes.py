"""Job notes: what a redrive job writes of its progress, and whether another job still runs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from socket import gethostname

from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.redrive_topics import RedriveTopics
from ackfloor.dead_letters.kafka.redrive_writer import NewRecord
from ackfloor.dead_letters.rules.dispositions import Disposed
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, Jobs, JobState
from ackfloor.dead_letters.rules.redrive_rules import Order
from ackfloor.errors import AckfloorError, RedriveRefused

#: A job that has written nothing for so long, and three of its pauses, is taken for ended.
SILENCE_S = 30.0
#: How long the note of who has ended a job is waited for, and between two looks.
NOTE_S = 10.0
LOOK_S = 0.2


class JobSign:
    """Writes the note of a running job.

    Args:
        earlier: what the job wrote when it ran before.
        to_do: how many dead letters it is to deal with, beside those that it has.
        pause_s: the time between two of its transactions.
    """

    def __init__(
        self,
        order: Order,
        topics: RedriveTopics,
        earlier: JobNote | None,
        to_do: int,
        pause_s: float,
    ) -> None:
        at_ms = now_ms()
        self.job = order.job
        self._before, self._topic, self.earlier = order.before, topics.dispositions, earlier
        self._silence_ms = round((SILENCE_S + 3 * pause_s) * 1000)
        self._note = JobNote(
            job=order.job,
            action=order.action.value,
            state=JobState.RUNNING,
            by=order.by,
            host=gethostname(),
            pid=os.getpid(),
            target=topics.target.topic,
            done=order.before,
            wanted=order.before + to_do,
            began_ms=at_ms if earlier is None else earlier.began_ms,
            at_ms=at_ms,
            silent_at_ms=at_ms,
            asked=order.asked,
        )

    def record(self, state: JobState, done: int, why: str = "") -> NewRecord:
        """The note as it is to be written; `done` is how many it has dealt with this time."""
        at_ms = now_ms()
        note = replace(
            self._note,
            state=state,
            done=self._before + done,
            at_ms=at_ms,
            silent_at_ms=at_ms + self._silence_ms,
            why=why,
        )
        return NewRecord(self._topic, 0, note.key, note.to_bytes())

    def ended_by(self, jobs: Jobs) -> str:
        """Why somebody else has ended this job, as the notes say; "" where nobody has."""
        mine = jobs.notes.get(self.job)
        if mine is None or mine == self.earlier:
            return ""
        if (mine.host, mine.pid) != (self._note.host, self._note.pid):
            return f"{mine.by} has resumed this job"
        return mine.why if mine.state is JobState.STOPPED else ""


def with_earlier_runs(order: Order, jobs: Jobs) -> Order:
    """An order that resumes a job, with what another run of it has done since it was given.

    Both runs read the same note, then one ended the other: the maximum is the job's, not the run's.

    Raises:
        RedriveRefused: nothing of the maximum is left.
    """
    note = jobs.notes.get(order.job)
    if note is None or not order.resumes or order.before >= note.done:
        return order
    left = None if order.limit is None else order.limit - (note.done - order.before)
    if left is not None and left < 1:
        raise RedriveRefused(f"another run of this job has done its {note.done:,}")
    return replace(order, limit=left, before=note.done)


def who_ended(log: DispositionsLog, disposed: Disposed, sign: JobSign | None) -> str:
    """Which job or cancel has taken a job's transactional id; "" where no note says so in time.

    Both write a note after they took the id: a cancel that of the job it ended, a job its own.
    """
    notes, until_s = dict(disposed.jobs.notes), time.monotonic() + NOTE_S
    while sign is not None and time.monotonic() < until_s:
        with suppress(AckfloorError):  # read again, until the time is over
            log.read_on(disposed)
        if why := sign.ended_by(disposed.jobs):
            return why
        for note in disposed.jobs.latest_first():
            if note.job != sign.job and note != notes.get(note.job):
                return f"job {note.job} of {note.by} has begun on the same dead letters"
        time.sleep(LOOK_S)
    return ""


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def state_of(note: JobNote) -> JobState:
    """What is known of a job now; on this host, its process is looked for."""
    state = note.state_at(now_ms())
    if state is JobState.RUNNING and note.host == gethostname() and not _is_there(note.pid):
        return JobState.SILENT
    return state


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
