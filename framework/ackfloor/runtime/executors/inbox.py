"""Inbox: what executor workers post for the owner thread.

Deques, because `append` and `popleft` are atomic: posting needs no lock and never blocks. The
owner takes what is there once a turn; what is posted meanwhile waits for the next one.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery


class PauseRequest(NamedTuple):
    """A handler asked for a pause; its executor has given back what it has not started."""

    handler: str
    duration_s: float
    reason: str


class Inbox:
    """Everything that comes back from handlers."""

    __slots__ = ("answered", "broken", "errors", "finished", "pause_requests", "returned", "strays")

    def __init__(self) -> None:
        #: Deliveries with their outcome set.
        self.answered: deque[TrackedDelivery] = deque()
        #: (handler, unit) of slots that have ended it, or were given up; after its answers. That of
        #: a batch comes twice where its slot was given up and its handler returns after all.
        self.finished: deque[tuple[str, Work | Batch]] = deque()
        #: (handler, unit) of what was given to an executor and has not started, the next first.
        self.returned: deque[tuple[str, Unit]] = deque()
        self.pause_requests: deque[PauseRequest] = deque()
        #: What ended a part of an executor, which is not there any more: never an exception of a
        #: handler. The worker is to be replaced.
        self.broken: deque[BaseException] = deque()
        #: SystemExit and KeyboardInterrupt of tasks and callbacks on the event loop.
        self.strays: deque[BaseException] = deque()
        #: (delivery, exception) raised after it had been answered; the first delivery of a batch.
        self.errors: deque[tuple[TrackedDelivery, BaseException]] = deque()

    def take_returned(self) -> dict[str, list[Unit]]:
        """What executors gave back, of each handler, in its order."""
        found: dict[str, list[Unit]] = {}
        for _ in range(len(self.returned)):
            handler, unit = self.returned.popleft()
            found.setdefault(handler, []).append(unit)
        return found

    def take_answers(self) -> tuple[list[TrackedDelivery], list[tuple[str, Work | Batch]]]:
        """The answers, and the units that have ended: of each of these all answers are there."""
        # In this order: what was answered before a unit ended was posted before.
        finished = [self.finished.popleft() for _ in range(len(self.finished))]
        return [self.answered.popleft() for _ in range(len(self.answered))], finished
