"""Inbox: what executor workers post for the owner thread.

Deques, because `append` and `popleft` are atomic: posting needs no lock and never blocks. The
owner takes what is there once a turn; what is posted meanwhile waits for the next one.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeVar

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.core.queue import Item

T = TypeVar("T")


class Held(NamedTuple):
    """A handler asked for a pause; its executor has given back what it has not started."""

    handler: str
    duration_s: float
    reason: str


class Inbox:
    """Everything that comes back from handlers."""

    __slots__ = ("answered", "batches", "broken", "errors", "held", "left", "returned", "strays")

    def __init__(self) -> None:
        #: Deliveries with their outcome set.
        self.answered: deque[Delivery] = deque()
        #: (handler, batch) of calls that have ended, or were given up.
        self.batches: deque[tuple[str, Batch]] = deque()
        #: (handler, run) of workers that found their run empty.
        self.left: deque[tuple[str, Run]] = deque()
        #: (handler, item) of what was given to an executor and has not started, the next first.
        self.returned: deque[tuple[str, Item | Batch]] = deque()
        self.held: deque[Held] = deque()
        #: What ended a part of an executor, which is not there any more: never an exception of a
        #: handler. The worker is to be replaced.
        self.broken: deque[BaseException] = deque()
        #: SystemExit and KeyboardInterrupt of tasks and callbacks on the event loop.
        self.strays: deque[BaseException] = deque()
        #: (delivery, exception) raised after it had been answered; the first delivery of a batch.
        self.errors: deque[tuple[Delivery, BaseException]] = deque()

    def take_returned(self) -> dict[str, list[Item | Batch]]:
        """What executors gave back, of each handler."""
        return _by_handler(self.returned)

    def take_left(self) -> dict[str, list[Run]]:
        """The runs that workers found empty, of each handler."""
        return _by_handler(self.left)


def _by_handler(posted: deque[tuple[str, T]]) -> dict[str, list[T]]:
    """Take what is there, in its order."""
    found: dict[str, list[T]] = {}
    for _ in range(len(posted)):
        handler, item = posted.popleft()
        found.setdefault(handler, []).append(item)
    return found
