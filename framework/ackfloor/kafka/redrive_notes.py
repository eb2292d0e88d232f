"""What a job writes of itself beside its dispositions, and whether another one still runs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from socket import gethostname

from ackfloor.core.redrive import Order
from ackfloor.core.redrive_jobs import JobNote, JobState
from ackfloor.kafka.redrive_topics import RedriveTopics
from ackfloor.kafka.redrive_writer import NewRecord

#: A job that has written nothing for so long, and three of its pauses, is taken for ended.
SILENCE_S = 30.0


class JobSign:
    """The note of a job that works.

    Args:
        earlier: what the job wrote when it ran before.
        wanted: how many dead letters were asked for.
        pause_s: the time between two of its transactions.
    """

    def __init__(
        self,
        order: Order,
        topics: RedriveTopics,
        earlier: JobNote | None,
        wanted: int,
        pause_s: float,
    ) -> None:
        at_ms = now_ms()
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
            wanted=wanted if order.limit is None else min(wanted, order.before + order.limit),
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
