"""Batch: deliveries that one call of a handler takes together.

A batch is not a unit of anything but the call: each of its deliveries is open, has a token and
ends by itself. What they share is the start, the deadline, and the outcome of those that were not
answered one by one. `items` are in offset order within each lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackfloor.core.queues.lanes import Lane
    from ackfloor.core.records.outcomes import Failed, Outcome, Rejected
    from ackfloor.core.records.tracked_delivery import TrackedDelivery


class Batch:
    """One call's deliveries.

    Attributes:
        items: the deliveries that were started.
        lanes: those of its items, where the handler is ordered.
        outcome: how the call ended; None while it runs. The slot's.
        finished_s: when (monotonic seconds). The slot's.
        abandoned: its slot must give it up.
        given: it is with the executor, and its call has not ended; the engine's, as is all below.
        failure: what ended the items that were not answered.
        counted: whether the handler's circuit breaker has counted that failure.
        failed: items that failed in a lane and are judged when the batch is over.
        paused: items whose call asked for a pause, or killed its process; they are delivered again.
        over: its lanes are free again.
    """

    __slots__ = (
        "abandoned",
        "counted",
        "failed",
        "failure",
        "finished_s",
        "given",
        "items",
        "lanes",
        "outcome",
        "over",
        "paused",
    )

    def __init__(self) -> None:
        self.items: list[TrackedDelivery] = []
        self.lanes: list[Lane] = []
        self.outcome: Outcome | None = None
        self.finished_s = 0.0
        self.abandoned = False
        self.given = False
        self.failure: Failed | Rejected | None = None
        self.counted = False
        self.failed: list[tuple[TrackedDelivery, Failed | Rejected]] = []
        self.paused: list[TrackedDelivery] = []
        self.over = False

    def unanswered(self) -> bool:
        """Whether the outcome of the call matters to any of its items."""
        return any(d.outcome is None and not d.closed for d in self.items)

    def closed(self) -> bool:
        """Whether the engine has ended every item."""
        return all(d.closed for d in self.items)
