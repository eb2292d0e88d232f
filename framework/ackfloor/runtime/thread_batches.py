"""ThreadBatchExecutor: a plain `def` handler that takes batches.

Its slots are those of `ThreadExecutor`; what they take is a batch, and the lease holds the first of
its deliveries. As on the event loop, a slot leaves its lanes with the end of each batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.outcomes import ACKED, Outcome
from ackfloor.ports import Stack
from ackfloor.runtime.batch_calls import begin, given_up, post, startable
from ackfloor.runtime.batch_marks import Places
from ackfloor.runtime.thread_executor import ThreadExecutor
from ackfloor.runtime.thread_slot import Slot, end_lease


class ThreadBatchExecutor(ThreadExecutor):
    """Runs one sync handler that takes batches; implements `ports.Executor`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = Places(self._marks)

    def running(self) -> Iterable[Delivery]:
        """The deliveries of the batches that occupy a slot."""
        firsts = [delivery for slot in self._slots for delivery in slot.lease]
        return [delivery for first in firsts for delivery in first.batch.items]

    def stack(self, delivery: Delivery) -> Stack:
        """Where the handler of its batch is; see `ports.Executor`."""
        return super().stack(delivery.batch.items[0])

    def abandon(self, delivery: Delivery) -> None:
        """Give the slot of a batch to a new thread once all of it has ended."""
        if given_up(delivery.batch):
            super().abandon(delivery.batch.items[0])

    def work(self, slot: Slot) -> None:
        """Take and handle batches; runs in the slot's own thread."""
        ready = self._window.ready
        while not slot.abandoned:
            if self._excess and self._retire(slot):
                return
            try:
                batch = ready.popleft()
            except IndexError:
                if not self._sleep(slot):
                    return
                continue
            if self._idle and ready:
                self._wake_one()
            self._take(slot, batch)

    def _take(self, slot: Slot, batch: Batch) -> None:
        """Call the handler with a batch, unless nothing of it may start."""
        lease = slot.lease = batch.items[:1]
        if not startable(batch, stopping=self._stopping):
            self._window.end(batch)
            if lease:
                end_lease(slot, lease)
            return
        slot.unit = batch
        lease = slot.lease = batch.items[:1]
        self._places.note(slot.place, batch)
        begin(batch, self._clock())
        raised: BaseException | None = None
        outcome: Outcome = ACKED
        try:
            self._invocation.call(batch)
        except BaseException as exc:
            raised = exc
            outcome = self._invocation.outcome_of(exc)
        post(
            batch,
            outcome,
            raised,
            handler=self.handler,
            window=self._window,
            inbox=self._inbox,
            now_s=self._clock(),
        )
        slot.unit = None
        end_lease(slot, lease)
        self._places.clear(slot.place, batch)

    def ended(self, slot: Slot) -> None:
        """A thread is about to end."""
        self._places.give_back(slot.place)
        super().ended(slot)
