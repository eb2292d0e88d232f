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
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Failed, Outcome, Rejected
from ackfloor.core.records.record import Failure
from ackfloor.core.records.tracked_delivery import TrackedDelivery


class PauseRequest(NamedTuple):
    """A handler asked for a pause; posted before its executor gives back what has not started."""

    handler: str
    duration_s: float
    reason: str


class HandlerFailure(NamedTuple):
    """A handler failed; posted before the answer that ends its delivery.

    Attributes:
        delivery: the first one without an answer, of a batch.
        failure: what went wrong, as text.
        exc: what was raised; None where that was in another process, or nothing was raised.
    """

    delivery: TrackedDelivery
    failure: Failure
    exc: BaseException | None


class Inbox:
    """Everything that comes back from handlers."""

    __slots__ = (
        "answered",
        "broken",
        "errors",
        "failures",
        "finished",
        "pause_requests",
        "returned",
        "strays",
    )

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
        #: Neither timeouts, nor what does not decode, nor what a handler asked for.
        self.failures: deque[HandlerFailure] = deque()

    def note_failure(
        self, delivery: TrackedDelivery, outcome: Outcome, exc: BaseException | None
    ) -> None:
        """Post a failure, if the outcome is one; before the outcome, for its lines are logged then.

        Args:
            delivery: what failed.
            outcome: how it ends.
            exc: what was raised, where it is known here.
        """
        if isinstance(outcome, Failed | Rejected) and not _is_reported_elsewhere(outcome):
            self.failures.append(HandlerFailure(delivery, outcome.failure, exc))

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


def _is_reported_elsewhere(outcome: Failed | Rejected) -> bool:
    """Whether it has an own way to be told, or the handler asked for it."""
    if outcome.reason in (Reason.TIMEOUT, Reason.DECODE):
        return True
    # What was asked for, by a `Retry` or `DeadLetter`, has no stack.
    return outcome.reason in (Reason.RETRY, Reason.DEAD_LETTER) and not outcome.failure.stack
