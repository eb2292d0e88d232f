"""Orders: what an operator wants done once, from the run's address to all running workers.

Only the workers know which of them has a partition, so the run asks all of them, and each acts on
the records in its own memory. The run keeps no orders: a worker that does not answer in time, or is
started later, is not asked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from ackfloor.live.requests import Requests

if TYPE_CHECKING:
    from ackfloor.runtime.supervision.channel import Kind
    from ackfloor.runtime.supervision.supervisor import Tell

#: An order, or an answer to one, as JSON can hold it.
Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the workers answered.

    Attributes:
        by_worker: worker -> its answer.
        silent: the workers that did not answer in time.
    """

    by_worker: Mapping[int, Tree]
    silent: tuple[int, ...]

    def workers(self) -> dict[str, list[int]]:
        """Which workers answered, and which did not, as JSON."""
        return {"answered": sorted(self.by_worker), "silent": list(self.silent)}


class WorkerOrders:
    """The supervisor's side of orders of one kind.

    The supervisor's loop calls everything but `ask`, whose thread waits until the loop is done.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._numbers = count(1)
        self._requests = Requests[tuple[int, Tree], Tree]()

    def ask(self, order: Tree, wait_s: float) -> Answers:
        """Give an order to all running workers and wait for their answers.

        Raises:
            TimeoutError: the supervisor's loop has not taken it yet.
        """
        request = self._requests.ask((next(self._numbers), order), wait_s)
        return Answers(request.answers, tuple(sorted(request.waiting)))

    def step(self, running: Iterable[int], tell: Tell) -> None:
        """Send new orders to the workers, and end those that are past their deadline."""
        workers = set(running)
        for request in self._requests.new():
            number, order = request.asked
            self._requests.sent(request, number, workers)
            for worker in workers:
                # A worker whose channel has no room gets nothing and is reported as silent.
                tell(worker, self._kind, json.dumps({**order, "number": number}).encode())
        self._requests.pending()

    def received(self, worker: int, body: bytes) -> None:
        """Take a worker's answer."""
        tree = json.loads(body)
        self._requests.answered(worker, tree.pop("number"), tree)

    def left(self, worker: int) -> None:
        """This worker will not answer: no order waits for it."""
        self._requests.left(worker)


def answer_order(body: bytes, carry_out: Callable[[Tree], Tree]) -> bytes:
    """In a worker: carry out the order in a frame; returns the answer's frame."""
    order = json.loads(body)
    number = order.pop("number")
    return json.dumps({**carry_out(order), "number": number}).encode()
