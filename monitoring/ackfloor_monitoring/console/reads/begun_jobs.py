"""BegunJobs: the jobs that this console has begun and that Kafka's notes do not tell of yet.

The index reads the notes of jobs every few seconds. Who looks at the page of jobs before that is
told that one runs, and not that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from ackfloor.redrive import JobNote

#: Milliseconds after which one is forgotten: its topic is gone, or the index is not renewed.
LONGEST_MS: Final = 600_000


class BegunJob(NamedTuple):
    """One.

    Attributes:
        began_ms: when, in milliseconds since 1970: its notes of before then tell of an earlier go.
    """

    topic: str
    job: str
    began_ms: int


class BegunJobs:
    """Those of one cluster; any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._begun: dict[str, BegunJob] = {}

    def begin(self, topic: str, job: str) -> None:
        """Note that a job begins."""
        with self._lock:
            self._begun[job] = BegunJob(topic, job, _now_ms())

    def forget(self, job: str) -> None:
        """Forget one that has ended and left no note, or may have left none."""
        with self._lock:
            self._begun.pop(job, None)

    def unread(self, known: Mapping[str, Sequence[JobNote]]) -> Sequence[BegunJob]:
        """Those without a note of theirs, the latest first; the others are forgotten.

        Args:
            known: topic -> the newest notes of its jobs.
        """
        said = {(topic, each.job): each.at_ms for topic, notes in known.items() for each in notes}
        with self._lock:
            for each in list(self._begun.values()):
                is_read = said.get((each.topic, each.job), -1) >= each.began_ms
                if is_read or _now_ms() - each.began_ms > LONGEST_MS:
                    del self._begun[each.job]
            return list(reversed(self._begun.values()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
