"""Request: a change that somebody asked for and waits for, in a thread of its own.

The supervisor's loop asks the workers and collects their answers. It sets `done` last, so whoever
waits for that sees the rest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.frames import Answer, Overdue
from ackfloor.settings.live_settings import Changed

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


@dataclass(slots=True)
class Request(Generic[Asked, Answered]):
    """One request on its way.

    Attributes:
        asked: what is wanted.
        until_s: monotonic seconds at which nobody waits any longer.
        number: the answers to it repeat this number.
        waiting: the workers that have yet to answer; at the end, those that did not.
        answers: by worker.
        refused: why it can't be done.
    """

    asked: Asked
    until_s: float
    number: int = 0
    waiting: set[int] = field(default_factory=set)
    answers: dict[int, Answered] = field(default_factory=dict)
    refused: SettingError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def refuse(self, error: SettingError) -> None:
        """It can't be done."""
        self.refused = error
        self.done.set()

    def answered(self, worker: int, answer: Answered) -> None:
        """A worker answered."""
        if worker in self.waiting:
            self.answers[worker] = answer
            self.left(worker)

    def left(self, worker: int) -> None:
        """A worker has answered, or will not."""
        self.waiting.discard(worker)
        if not self.waiting:
            self.done.set()

    def over(self) -> bool:
        """Whether nothing more is to come of it."""
        if time.monotonic() >= self.until_s:
            self.done.set()
        return self.done.is_set()


class Requests(Generic[Asked, Answered]):
    """The requests of one kind; the supervisor's loop calls everything but `ask`."""

    def __init__(self) -> None:
        self._new: deque[Request[Asked, Answered]] = deque()
        self._sent: list[Request[Asked, Answered]] = []

    def ask(self, asked: Asked, wait_s: float) -> Request[Asked, Answered]:
        """Wait for what becomes of a request.

        Args:
            asked: what is wanted.
            wait_s: how long to wait for workers, in seconds.

        Raises:
            SettingError: it was refused.
            TimeoutError: the loop has not looked at it.
        """
        request = Request[Asked, Answered](asked, time.monotonic() + wait_s)
        self._new.append(request)
        if not request.done.wait(wait_s + 1.0):
            request.until_s = time.monotonic()
            raise TimeoutError("the run takes no requests yet: it is still starting")
        if request.refused is not None:
            raise request.refused
        return request

    def new(self) -> Iterator[Request[Asked, Answered]]:
        """Those that came since the last call and that somebody still waits for."""
        while self._new:
            request = self._new.popleft()
            if time.monotonic() < request.until_s:
                yield request

    def sent(self, request: Request[Asked, Answered], number: int, workers: Iterable[int]) -> None:
        """A request is put to these workers; where there are none, it is done."""
        request.number, request.waiting = number, set(workers)
        self._sent.append(request)
        if not request.waiting:
            request.done.set()

    def pending(self) -> list[Request[Asked, Answered]]:
        """Those that wait for answers."""
        self._sent = [request for request in self._sent if not request.over()]
        return self._sent

    def answered(self, worker: int, number: int, answer: Answered) -> None:
        """A worker answered the request of this number."""
        for request in self.pending():
            if request.number == number:
                request.answered(worker, answer)

    def left(self, worker: int) -> None:
        """A worker will not answer any more."""
        for request in self.pending():
            request.left(worker)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a request that changes how workers run.

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

    @classmethod
    def of(cls, request: Request[Any, Answer], changed: tuple[Changed, ...] = ()) -> Change:
        """What the workers answered."""
        answers = request.answers
        overdue = [each for answer in answers.values() for each in answer.overdue]
        return cls(
            changed,
            tuple(sorted(worker for worker, answer in answers.items() if not answer.refused)),
            {worker: answer.refused for worker, answer in answers.items() if answer.refused},
            tuple(sorted(request.waiting)),
            sum(answer.ends for answer in answers.values()),
            tuple(sorted(overdue, key=lambda each: -each.running_s)),
        )

    def workers(self) -> dict[str, object]:
        """Which of them took it, as JSON says it."""
        return {
            "applied": list(self.applied),
            "refused": {str(worker): why for worker, why in self.refused.items()},
            "silent": list(self.silent),
        }
