"""Early: what an operator says about waiting records, from the run's address to the workers.

Which worker has a partition is known to the workers alone, so all that run are asked, and each sees
to what waits in its own memory. Nothing is remembered: a worker that does not answer in time, or is
started later, is not asked again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ackfloor.core.early import Early, Places
from ackfloor.core.model import Now
from ackfloor.runtime.channel import Kind
from ackfloor.runtime.supervisor import Tell


class Action(StrEnum):
    """What is to be done about them."""

    COUNT = "count"
    PROMOTE = "promote"
    BURY = "bury"


@dataclass(frozen=True, slots=True)
class Said:
    """What the workers are told; `number` comes back with the answer."""

    number: int
    action: Action
    topic: str
    places: Mapping[int, tuple[int, ...]]

    def to_bytes(self) -> bytes:
        """As a frame's body."""
        places = {str(partition): offsets for partition, offsets in self.places.items()}
        tree = {"number": self.number, "action": self.action, "topic": self.topic, "places": places}
        return json.dumps(tree).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Said:
        """Read a frame's body."""
        tree = json.loads(body)
        places = {int(partition): tuple(offsets) for partition, offsets in tree["places"].items()}
        return cls(tree["number"], Action(tree["action"]), tree["topic"], places)


def done_early(early: Early, body: bytes, now: Now) -> bytes:
    """In a worker, on the owner thread: do what a frame says; returns the answer."""
    said = Said.from_bytes(body)
    if said.action is Action.PROMOTE:
        count = early.promote(said.topic, said.places, now)
    elif said.action is Action.BURY:
        count = early.bury(said.topic, said.places, now)
    else:
        count = early.waiting(said.topic, said.places)
    return json.dumps({"number": said.number, "count": count}).encode()


@dataclass(frozen=True, slots=True)
class EarlyResult:
    """What came of it: how many records, by which workers, and who has not answered."""

    count: int
    answered: tuple[int, ...]
    silent: tuple[int, ...]


@dataclass(slots=True)
class _Request:
    """One request on its way; the supervisor's loop fills it in and sets `done` last."""

    action: Action
    topic: str
    places: Places
    until_s: float
    number: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    waiting: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)


class RunEarly:
    """The supervisor's side.

    Its loop calls everything but `ask`, which waits in a thread of its own until the loop has seen
    to it.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._new: deque[_Request] = deque()
        self._asked: list[_Request] = []

    def ask(self, action: Action, topic: str, places: Places, wait_s: float) -> EarlyResult:
        """Have all running workers do it; waits for their answers.

        Raises:
            TimeoutError: nobody has looked at it.
        """
        request = _Request(action, topic, places, time.monotonic() + wait_s)
        self._new.append(request)
        if not request.done.wait(wait_s + 1.0):
            request.until_s = 0.0
            raise TimeoutError("the run takes no requests yet: it is still starting")
        answered = tuple(sorted(request.counts))
        return EarlyResult(
            sum(request.counts.values()), answered, tuple(sorted(request.waiting - set(answered)))
        )

    def step(self, running: Iterable[int], tell: Tell) -> None:
        """Tell the workers what was asked since the last step, and end what takes too long."""
        workers = set(running)
        while self._new:
            request = self._new.popleft()
            if time.monotonic() >= request.until_s:
                continue
            self._numbers += 1
            request.number, request.waiting = self._numbers, set(workers)
            places = {partition: tuple(offsets) for partition, offsets in request.places.items()}
            said = Said(request.number, request.action, request.topic, places).to_bytes()
            self._asked.append(request)
            for worker in workers:
                # One that has no room for it does not answer, and is called silent.
                tell(worker, Kind.EARLY, said)
        self._end()

    def heard(self, worker: int, body: bytes) -> None:
        """A worker answered."""
        tree = json.loads(body)
        for request in self._asked:
            if request.number == tree["number"] and worker in request.waiting:
                request.counts[worker] = tree["count"]
        self._end()

    def left(self, worker: int) -> None:
        """A worker will not answer any more."""
        for request in self._asked:
            if worker not in request.counts:
                request.waiting.discard(worker)
        self._end()

    def _end(self) -> None:
        now_s = time.monotonic()
        for request in self._asked:
            if request.waiting <= request.counts.keys() or now_s >= request.until_s:
                request.done.set()
        self._asked = [request for request in self._asked if not request.done.is_set()]
