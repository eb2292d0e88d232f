"""Request: a change to a run that a client waits for, in a thread of its own.

The supervisor's loop sends it to the workers and collects their answers. The loop sets `done`
last, so that the waiting thread sees everything else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ackfloor.core.values.setting_error import SettingError
    from ackfloor.live.frames import Answer, Overdue
    from ackfloor.settings.live_settings import Changed

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


@dataclass(slots=True)
class Request(Generic[Asked, Answered]):
    """One pending request.

    Attributes:
        asked: what is to be done.
        until_s: its deadline, in monotonic seconds.
        number: the workers' answers repeat it.
        waiting: the workers that have not answered yet.
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
        """End it with an error."""
        self.refused = error
        self.done.set()

    def answered(self, worker: int, answer: Answered) -> None:
        """Take a worker's answer, if it was asked."""
        if worker in self.waiting:
            self.answers[worker] = answer
            self.left(worker)

    def left(self, worker: int) -> None:
        """Wait for this worker no longer."""
        self.waiting.discard(worker)
        if not self.waiting:
            self.done.set()

    def over(self) -> bool:
        """Whether it is done or past its deadline."""
        if time.monotonic() >= self.until_s:
            self.done.set()
        return self.done.is_set()


class Requests(Generic[Asked, Answered]):
    """The requests of one kind; the supervisor's loop calls everything but `ask`."""

    def __init__(self) -> None:
        self._new: deque[Request[Asked, Answered]] = deque()
        self._sent: list[Request[Asked, Answered]] = []

    def ask(self, asked: Asked, wait_s: float) -> Request[Asked, Answered]:
        """Make a request and wait until it is done.

        Args:
            asked: what is to be done.
            wait_s: how long to wait for the workers, in seconds.

        Raises:
            SettingError: it was refused.
            TimeoutError: the supervisor's loop has not taken it yet.
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
        """The requests made since the last call whose deadline is not over."""
        while self._new:
            request = self._new.popleft()
            if time.monotonic() < request.until_s:
                yield request

    def sent(self, request: Request[Asked, Answered], number: int, workers: Iterable[int]) -> None:
        """A request was sent to these workers; if there are none, it is done."""
        request.number, request.waiting = number, set(workers)
        self._sent.append(request)
        if not request.waiting:
            request.done.set()

    def pending(self) -> list[Request[Asked, Answered]]:
        """The requests that still wait for answers."""
        self._sent = [request for request in self._sent if not request.over()]
        return self._sent

    def answered(self, worker: int, number: int, answer: Answered) -> None:
        """Take a worker's answer to the request with this number."""
        for request in self.pending():
            if request.number == number:
                request.answered(worker, answer)

    def left(self, worker: int) -> None:
        """This worker will not answer: no request waits for it."""
        for request in self.pending():
            request.left(worker)


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a request that changes how workers run.

    Attributes:
        changed: the settings that changed, or would.
        applied: the workers that applied it, or could.
        refused: worker -> why it did not.
        silent: the workers that did not answer in time; they apply it later.
        ends: how many running deliveries the change ended, or would end, at once.
        overdue: the longest running of these.
        group: of the app whose settings they are.
    """

    changed: tuple[Changed, ...]
    applied: tuple[int, ...]
    refused: dict[int, str]
    silent: tuple[int, ...]
    ends: int
    overdue: tuple[Overdue, ...]
    group: str = ""

    @classmethod
    def of(cls, request: Request[Any, Answer], changed: tuple[Changed, ...] = ()) -> Change:
        """Sum up the workers' answers."""
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
        """Which workers applied it, for JSON."""
        return {
            "applied": list(self.applied),
            "refused": {str(worker): why for worker, why in self.refused.items()},
            "silent": list(self.silent),
        }
