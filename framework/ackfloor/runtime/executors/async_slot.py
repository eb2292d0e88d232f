"""Slot: one unit of concurrency on the event loop, and what rids it of cancellations.

Touched on the event loop's thread alone; the owner thread only reads `current` and `unit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery


class Slot:
    """One unit of concurrency."""

    __slots__ = ("abandoned", "cancelled", "current", "place", "streak", "task", "unit")

    def __init__(self, place: int) -> None:
        #: Where its marks go.
        self.place = place
        #: Of a batch the first.
        self.current: TrackedDelivery | None = None
        #: The delivery whose handler was asked to stop.
        self.cancelled: TrackedDelivery | None = None
        #: What it is at, where that is not `current` alone.
        self.unit: Work | Batch | None = None
        self.abandoned = False
        self.streak = 0
        self.task: asyncio.Task[None] | None = None

    def running(self) -> Sequence[TrackedDelivery]:
        """What occupies it; any thread may ask."""
        current, unit = self.current, self.unit
        if current is None:
            return ()
        return unit.items if isinstance(unit, Batch) else (current,)

    def cancelling(self) -> bool:
        """Whether a cancellation has not been taken back."""
        return self.task is not None and self.task.cancelling() > 0

    def thrown_away(self, exc: BaseException) -> bool:
        """Whether an exception says that the event loop is gone, and this slot with it.

        Then nothing may be handled any more. A GeneratorExit that a handler raises by itself comes
        while the slot's task runs, and is an error like any other.
        """
        return isinstance(exc, GeneratorExit) and _running_task() is not self.task

    def cancel(self) -> bool:
        """Cancel what it runs, once: a second time would interrupt its clean-up."""
        if self.task is None or self.current is None or self.cancelled is self.current:
            return False
        self.cancelled = self.current
        return self.task.cancel()


async def yield_to_loop() -> None:
    """Let the event loop do other things; a cancellation that arrives here is dropped."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        uncancel()


async def clear_cancellation(slot: Slot) -> None:
    """Take back what is left of cancellations, also of one that has not arrived yet."""
    slot.cancelled = None
    slot.streak = 0
    uncancel()
    await yield_to_loop()


def uncancel() -> None:
    """Take back every cancellation of the current task that has not arrived."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _running_task() -> asyncio.Task[object] | None:
    """The task that runs in this thread, where an event loop does."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def finish(waiter: asyncio.Future[None]) -> None:
    """Wake who waits, unless somebody has."""
    if not waiter.done():
        waiter.set_result(None)
