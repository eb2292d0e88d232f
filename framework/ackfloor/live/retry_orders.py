"""Retry orders: an operator's `retry promote` and `retry bury`, from the run's address to workers.

Only the workers know which of them has a partition, so the run asks all that are running, and each
handles the records that wait in its own memory. The run keeps no orders: a worker that does not
answer in time, or is started later, is not asked again.
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
    """What to do with waiting records."""

    COUNT = "count"
    PROMOTE = "promote"
    BURY = "bury"


@dataclass(frozen=True, slots=True)
class RetryOrder:
    """One order to the workers; the answer repeats `number`."""

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
    def from_bytes(cls, body: bytes) -> RetryOrder:
        """Read a frame's body."""
        tree = json.loads(body)
        places = {int(partition): tuple(offsets) for partition, offsets in tree["places"].items()}
        return cls(tree["number"], Action(tree["action"]), tree["topic"], places)


def carry_out_retry_order(promotions: Promotions, body: bytes, now: Now) -> bytes:
    """In a worker, on the owner thread: carry out a frame's order; returns the answer."""
    order = RetryOrder.from_bytes(body)
    if order.action is Action.PROMOTE:
        found = promotions.promote(order.topic, order.places, now)
    elif order.action is Action.BURY:
        found = promotions.bury(order.topic, order.places, now)
    else:
        found = promotions.waiting(order.topic, order.places)
    return json.dumps({"number": order.number, "count": found}).encode()


@dataclass(frozen=True, slots=True)
class RetryResult:
    """How many records the workers found, which workers answered, and which did not."""

    count: int
    answered: tuple[int, ...]
    silent: tuple[int, ...]


class RetryOrders:
    """The supervisor's side.

    The supervisor's loop calls everything but `ask`, whose thread waits until the loop is done.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._requests = Requests[RetryOrder, int]()

    def ask(self, action: Action, topic: str, places: Places, wait_s: float) -> RetryResult:
        """Give an order to all running workers and wait for their answers.

        Raises:
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        listed = {partition: tuple(offsets) for partition, offsets in places.items()}
        request = self._requests.ask(RetryOrder(next(self._numbers), action, topic, listed), wait_s)
        counts, silent = request.answers, tuple(sorted(request.waiting))
        return RetryResult(sum(counts.values()), tuple(sorted(counts)), silent)

    def step(self, running: Iterable[int], tell: Tell) -> None:
        """Send new orders to the workers, and end those that are past their deadline."""
        workers = set(running)
        for request in self._requests.new():
            self._requests.sent(request, request.asked.number, workers)
            for worker in workers:
                # A worker whose channel has no room gets nothing and is reported as silent.
                tell(worker, Kind.RETRY_NOW, request.asked.to_bytes())
        self._requests.pending()

    def received(self, worker: int, body: bytes) -> None:
        """Take a worker's answer."""
        tree = json.loads(body)
        self._requests.answered(worker, tree["number"], tree["count"])

    def left(self, worker: int) -> None:
        """This worker will not answer: no order waits for it."""
        self._requests.left(worker)
