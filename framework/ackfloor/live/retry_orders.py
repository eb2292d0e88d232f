"""Promotions: what an operator says about waiting records, from the run's address to the workers.

Which worker has a partition is known to the workers alone, so all that run are asked, and each sees
to what waits in its own memory. Nothing is remembered: a worker that does not answer in time, or is
started later, is not asked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from ackfloor.core.records.record import Now
from ackfloor.core.scheduling.promotions import Places, Promotions
from ackfloor.live.requests import Requests
from ackfloor.runtime.supervision.channel import Kind
from ackfloor.runtime.supervision.supervisor import Tell


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


def done_early(early: Promotions, body: bytes, now: Now) -> bytes:
    """In a worker, on the owner thread: do what a frame says; returns the answer."""
    said = Said.from_bytes(body)
    if said.action is Action.PROMOTE:
        found = early.promote(said.topic, said.places, now)
    elif said.action is Action.BURY:
        found = early.bury(said.topic, said.places, now)
    else:
        found = early.waiting(said.topic, said.places)
    return json.dumps({"number": said.number, "count": found}).encode()


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What came of it: how many records, by which workers, and who has not answered."""

    count: int
    answered: tuple[int, ...]
    silent: tuple[int, ...]


class RetryOrders:
    """The supervisor's side.

    Its loop calls everything but `ask`, which waits in a thread of its own until the loop has seen
    to it.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._requests = Requests[Said, int]()

    def ask(self, action: Action, topic: str, places: Places, wait_s: float) -> RetryResult:
        """Have all running workers do it; waits for their answers.

        Raises:
            TimeoutError: nobody has looked at it.
        """
        listed = {partition: tuple(offsets) for partition, offsets in places.items()}
        request = self._requests.ask(Said(next(self._numbers), action, topic, listed), wait_s)
        counts, silent = request.answers, tuple(sorted(request.waiting))
        return RetryResult(sum(counts.values()), tuple(sorted(counts)), silent)

    def step(self, running: Iterable[int], tell: Tell) -> None:
        """Tell the workers what was asked since the last step, and end what takes too long."""
        workers = set(running)
        for request in self._requests.new():
            self._requests.sent(request, request.asked.number, workers)
            for worker in workers:
                # One that has no room for it does not answer, and is called silent.
                tell(worker, Kind.RETRY_NOW, request.asked.to_bytes())
        self._requests.pending()

    def heard(self, worker: int, body: bytes) -> None:
        """A worker answered."""
        tree = json.loads(body)
        self._requests.answered(worker, tree["number"], tree["count"])

    def left(self, worker: int) -> None:
        """A worker will not answer any more."""
        self._requests.left(worker)
