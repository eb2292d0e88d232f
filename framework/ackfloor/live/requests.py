"""Request: a change that somebody asked for and waits for, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ackfloor.core.errors import SettingError
from ackfloor.live.frames import Answer, Overdue
from ackfloor.settings.live import Changed


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a request.

    Attributes:
        changed: the settings that differ now, or would.
        applied: workers that go by them, or could.
        refused: worker -> why it does not.
        silent: workers that have not answered in time; they will go by them when they can.
        ends: running deliveries that the change ended, or would end, at once.
        overdue: the longest running of them.
    """

    changed: tuple[Changed, ...]
    applied: tuple[int, ...]
    refused: dict[int, str]
    silent: tuple[int, ...]
    ends: int
    overdue: tuple[Overdue, ...]


@dataclass(slots=True)
class Request:
    """One request on its way.

    The supervisor's loop fills it in; `done` is the last thing it does, so who waits for that
    sees the rest.
    """

    values: dict[str, object]
    dry_run: bool
    until_s: float
    done: threading.Event = field(default_factory=threading.Event)
    number: int = 0
    changed: tuple[Changed, ...] = ()
    _waiting: set[int] = field(default_factory=set)
    _answers: dict[int, Answer] = field(default_factory=dict)
    _refused: SettingError | None = None

    # The supervisor's loop.

    def refuse(self, error: SettingError) -> None:
        """It can't be done."""
        self._refused = error
        self.done.set()

    def ask(self, changed: tuple[Changed, ...], number: int, workers: Iterable[int]) -> None:
        """The workers are asked."""
        self.changed, self.number, self._waiting = changed, number, set(workers)
        self._end_if_all_came()

    def answered(self, worker: int, answer: Answer) -> None:
        """A worker answered some word."""
        if answer.number == self.number and worker in self._waiting:
            self._answers[worker] = answer
            self.left(worker)

    def left(self, worker: int) -> None:
        """A worker has answered, or will not."""
        self._waiting.discard(worker)
        self._end_if_all_came()

    def over(self, now_s: float) -> bool:
        """Whether nothing more is to come of it."""
        if now_s >= self.until_s:
            self.done.set()
        return self.done.is_set()

    def _end_if_all_came(self) -> None:
        if not self._waiting:
            self.done.set()

    # Who asked.

    def result(self, timeout_s: float) -> Change:
        """Wait for what becomes of it.

        Raises:
            SettingError: it was refused.
            TimeoutError: nobody has looked at it.
        """
        if not self.done.wait(timeout_s):
            self.until_s = time.monotonic()
            raise TimeoutError("the run takes no requests yet: it is still starting")
        if self._refused is not None:
            raise self._refused
        answers = self._answers
        overdue = sorted(
            (each for answer in answers.values() for each in answer.overdue),
            key=lambda each: -each.running_s,
        )
        return Change(
            self.changed,
            tuple(sorted(worker for worker, answer in answers.items() if not answer.refused)),
            {worker: answer.refused for worker, answer in answers.items() if answer.refused},
            tuple(sorted(self._waiting)),
            sum(answer.ends for answer in answers.values()),
            tuple(overdue),
        )
