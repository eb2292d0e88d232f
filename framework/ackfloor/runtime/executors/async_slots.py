"""AsyncSlots: how many slots of one handler there are on the event loop, and which.

Fewer slots: whichever ends its record next leaves, until there are none too many. So no handler
is interrupted, and nothing starts before fewer run than may.

A slot whose handler swallows its cancellation is given up after a grace, and a new one takes its
place. All of this runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.async_slot import Slot, finish
from ackfloor.runtime.executors.batch_calls import given_up
from ackfloor.runtime.executors.batch_in_flight import Places
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

#: Seconds that all slots at work may keep the event loop together before each yields to it.
YIELD_INTERVAL_S = 0.001


class AsyncSlots(ABC):
    """The slots of one handler; what each does is for the executor to say (`_work`).

    Args:
        handler: its name.
        loop: a running event loop, in any thread.
        concurrency: how many slots there are at the start.
        cancel_grace_s: how long a cancelled handler may take to end before its slot is given
            to a new one.
        in_flight: where what runs is noted for whoever outlives this process.
        broke: called with what ended a slot where that is no handler's exception; the delivery of
            the slot stays open.
    """

    def __init__(
        self,
        handler: str,
        loop: asyncio.AbstractEventLoop,
        *,
        concurrency: int,
        cancel_grace_s: float,
        in_flight: InFlightMemory,
        broke: Callable[[BaseException], None],
    ) -> None:
        self._handler = handler
        self._loop = loop
        self._concurrency = concurrency
        self._cancel_grace_s = cancel_grace_s
        self._in_flight = in_flight
        self._places = Places(in_flight)
        self._broke = broke
        self._idle: deque[asyncio.Future[None]] = deque()
        self._slots: list[Slot] = []
        self._zombies: set[Slot] = set()
        #: How many slots are too many and have not left yet.
        self._excess = 0
        self._stopping = False

    @abstractmethod
    async def _work(self, slot: Slot) -> None:
        """Take and handle deliveries until the executor stops or the slot is abandoned."""

    @abstractmethod
    def _quit(self, unit: Work | Batch) -> None:
        """The slot that was at this was given up."""

    async def _start(self) -> None:
        for _ in range(self._concurrency):
            self._add_slot()

    def _resize(self, concurrency: int) -> None:
        if self._stopping:
            return
        self._excess = max(0, len(self._slots) - concurrency)
        for _ in range(concurrency - len(self._slots)):
            self._add_slot()
        if self._excess:
            # Idle ones leave at once. All are woken, so that whoever stays looks at the queue after
            # them: a wake-up that reached one that leaves is not lost.
            for _ in range(len(self._idle)):
                self._wake_one()

    def _retire(self, slot: Slot) -> None:
        """A slot ends because there are too many."""
        self._excess -= 1
        self._slots.remove(slot)

    def _add_slot(self) -> None:
        slot = Slot(self._in_flight.take_place())
        self._slots.append(slot)
        name = f"ackfloor:{self._handler}"
        slot.task = self._loop.create_task(self._work(slot), name=name)
        slot.task.add_done_callback(partial(self._gone, slot))

    def _gone(self, slot: Slot, task: asyncio.Task[None]) -> None:
        """A slot has ended: by itself, or because it broke."""
        self._places.give_back(slot.place)
        broke = asyncio.CancelledError() if task.cancelled() else task.exception()
        if broke is None or self._stopping:
            return
        if slot in self._slots:
            self._slots.remove(slot)
        self._broke(broke)

    def _yield_interval_s(self) -> float:
        """Seconds that a slot may go on before it yields to the event loop."""
        return YIELD_INTERVAL_S / max(1, len(self._slots) - len(self._idle))

    def _wake_one(self) -> None:
        if self._idle:
            finish(self._idle.popleft())

    def _cancel(self, delivery: TrackedDelivery) -> None:
        for slot in self._slots:
            if delivery in slot.running():
                if isinstance(slot.unit, Batch) and not given_up(slot.unit):
                    return
                if slot.cancel():
                    grace_s = self._cancel_grace_s
                    self._loop.call_later(grace_s, self._give_up, slot, slot.current)
                return

    def _give_up(self, slot: Slot, delivery: TrackedDelivery | None) -> None:
        """The handler swallowed its cancellation: its slot goes to a new one."""
        if slot.current is not delivery or slot.task is None or slot.abandoned:
            return
        slot.abandoned = True
        self._slots.remove(slot)
        self._zombies.add(slot)
        slot.task.add_done_callback(lambda _: self._zombies.discard(slot))
        if slot.unit is not None:
            self._quit(slot.unit)
        if self._excess:
            self._excess -= 1
        elif not self._stopping:
            self._add_slot()

    async def _stop(self, timeout_s: float) -> int:
        self._stopping = True
        while self._idle:
            self._wake_one()
        slots = [*self._slots, *self._zombies]
        for slot in slots:
            slot.cancel()
        tasks = [slot.task for slot in slots if slot.task is not None]
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=timeout_s)
        return len(pending)
