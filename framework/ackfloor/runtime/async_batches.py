"""AsyncBatchExecutor: an `async def` handler that takes batches.

Its slots are those of `AsyncExecutor`; what they take is a batch, and `current` is the first of its
deliveries. A slot leaves its lanes with the end of each batch: who goes on is for the engine to say
(core/batches.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.outcomes import ACKED, RELEASED, Outcome
from ackfloor.ports import Stack
from ackfloor.runtime.async_executor import STREAK, AsyncExecutor
from ackfloor.runtime.async_slot import Slot, breathe, calm
from ackfloor.runtime.batch_calls import begin, given_up, post, startable
from ackfloor.runtime.batch_marks import Places


class AsyncBatchExecutor(AsyncExecutor):
    """Runs one async handler that takes batches; implements `ports.Executor`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = Places(self._marks)

    def running(self) -> Iterable[Delivery]:
        """The deliveries of the batches that occupy a slot."""
        firsts = [d for s in self._slots.copy() if (d := s.current) is not None]
        return [delivery for first in firsts for delivery in first.batch.items]

    def stack(self, delivery: Delivery) -> Stack:
        """Where the handler of its batch is; see `ports.Executor`."""
        return super().stack(delivery.batch.items[0])

    def abandon(self, delivery: Delivery) -> None:
        """Cancel the handler of a batch once all of it has ended."""
        if given_up(delivery.batch):
            super().abandon(delivery.batch.items[0])

    async def _work(self, slot: Slot) -> None:
        ready = self._window.ready
        while not slot.abandoned:
            if self._excess:
                self._retire(slot)
                return
            try:
                batch = ready.popleft()
            except IndexError:
                if not await self._sleep(slot):
                    return
                continue
            await self._take(slot, batch)

    async def _take(self, slot: Slot, batch: Batch) -> None:
        """Call the handler with a batch, unless nothing of it may start."""
        if batch.items:
            slot.current = batch.items[0]
        if not startable(batch, stopping=self._stopping):
            slot.current = None
            self._window.end(batch)
            return
        slot.current, slot.unit = batch.items[0], batch
        self._places.note(slot.place, batch)
        begin(batch, self._clock())
        outcome, raised = await self._called(slot, batch)
        post(
            batch,
            outcome,
            raised,
            handler=self._invocation.handler,
            window=self._window,
            inbox=self._inbox,
            now_s=self._clock(),
        )
        slot.current = slot.unit = None
        self._places.clear(slot.place, batch)
        if slot.task is not None and slot.task.cancelling():
            await calm(slot)
        slot.streak += len(batch.items)
        if slot.streak >= STREAK:
            slot.streak = 0
            await breathe()

    async def _called(
        self, slot: Slot, batch: Batch
    ) -> tuple[Outcome | None, BaseException | None]:
        try:
            await self._invocation.call(batch)
        except BaseException as exc:
            if slot.thrown_away(exc):
                raise
            if isinstance(exc, asyncio.CancelledError) and slot.cancelled is batch.items[0]:
                return (RELEASED if batch.unanswered() else None), None
            return self._invocation.outcome_of(exc), exc
        return ACKED, None

    def _gone(self, slot: Slot, task: asyncio.Task[None]) -> None:
        self._places.give_back(slot.place)
        super()._gone(slot, task)
