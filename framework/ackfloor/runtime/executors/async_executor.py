"""AsyncExecutor: one `async def` handler on an event loop.

`concurrency` long-lived coroutines (slots) take from a deque what the executor was given: a
delivery, a work (records of a lane), or a batch. No task, timer or future per record. All slot
state is touched only on the event loop's thread; the owner thread talks to it through atomic deque
operations and `call_soon_threadsafe`.

Why a lost wake-up can't happen: a slot that finds the deque empty first puts itself on the idle
list and then looks at the deque again; `submit` first fills the deque and then looks at the
idle list. At least one of the two sees the other.

Why a cancelled handler can't take its slot's next record with it: the cancellation is asked for
on the loop's thread while `slot.current` is that very delivery, so the slot is suspended inside
that handler, and that is where the CancelledError arrives. A handler may also cancel the task it
runs in, and return before that has any effect; so whatever is left of a cancellation when a
handler ends is taken back before the next one starts.

A work belongs to the slot that took it. A slot that finds, after its handler, that the delivery was
ended by somebody else (deadline, revoke) ends the work; one that was abandoned does not, for who
abandoned it has posted its end already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, RELEASED, Outcome, Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.ports import Stack
from ackfloor.runtime.calls.invoke import Invocation, set_current
from ackfloor.runtime.calls.stacks import task_stack
from ackfloor.runtime.executors.async_slot import (
    Slot,
    clear_cancellation,
    finish,
    uncancel,
    yield_to_loop,
)
from ackfloor.runtime.executors.async_slots import AsyncSlots
from ackfloor.runtime.executors.batch_calls import begin, post, startable
from ackfloor.runtime.executors.event_loop import EventLoop
from ackfloor.runtime.executors.handler_exceptions import outcome_of
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.window import Window
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

#: Records handled without a suspension before a slot checks whether to yield to the event loop.
STREAK = 64
#: Records a slot takes of one work before it lets another one have its turn.
LANE_TURN = 64
#: Seconds beyond its time limit after which a stop gives up on an event loop that is blocked.
BLOCKED_S = 1.0


class AsyncExecutor(AsyncSlots):
    """Runs one async handler; implements `ports.Executor`.

    Args:
        invocation: how the handler is called.
        events: a running event loop's thread.
        inbox: where finished deliveries go.
        clock: monotonic seconds.
        concurrency: how many deliveries run at once.
        cancel_grace_s: how long a cancelled handler may take to end before its slot is given
            to a new one.
        in_flight: where what runs is noted for whoever outlives this process.
    """

    def __init__(
        self,
        invocation: Invocation,
        events: EventLoop,
        inbox: Inbox,
        clock: Callable[[], float],
        *,
        concurrency: int,
        cancel_grace_s: float,
        in_flight: InFlightMemory | None = None,
    ) -> None:
        super().__init__(
            invocation.handler,
            events.loop,
            concurrency=concurrency,
            cancel_grace_s=cancel_grace_s,
            in_flight=in_flight or InFlightMemory(),
            broke=inbox.broken.append,
        )
        self._events = events
        self._invocation = invocation
        self._inbox = inbox
        self._clock = clock
        self._cells = self._in_flight.cells
        self._window = Window(invocation.handler, inbox)
        #: Slots are being woken: there is a next look at what waits.
        self._waking = False

    # The owner thread's side.

    def start(self) -> None:
        """Start the slots and return when they are ready."""
        self._events.submit(self._start()).result()

    def submit(self, units: Sequence[Unit], *, last: bool = False) -> None:
        """Start these, in this order, behind what was given before; see `ports.Executor`."""
        self._window.add(units, last=last)
        if self._idle:
            self._loop.call_soon_threadsafe(self._wake)

    def take_back(self) -> None:
        """Give back what has not started."""
        self._window.give_back()

    def running(self) -> Iterable[TrackedDelivery]:
        """The deliveries that occupy a slot, also those about to start."""
        return [delivery for slot in self._slots.copy() for delivery in slot.running()]

    def queued(self) -> int:
        """Items that no slot has taken yet."""
        return len(self._window)

    def stack(self, delivery: TrackedDelivery) -> Stack:
        """Where its handler is; see `ports.Executor`."""
        return task_stack(
            next((slot.task for slot in self._slots.copy() if delivery in slot.running()), None)
        )

    def cancel(self, delivery: TrackedDelivery) -> None:
        """Cancel the delivery's handler; after the grace its slot goes to a new one.

        That of a batch once all of it has ended.
        """
        self._loop.call_soon_threadsafe(self._cancel, delivery)

    def abandoned(self) -> int:
        """Handlers that swallowed their cancellation and are still running."""
        return len(self._zombies)

    def resize(self, concurrency: int) -> None:
        """Run at most so many deliveries at once from now on."""
        self._loop.call_soon_threadsafe(self._resize, concurrency)

    def stop(self, timeout_s: float) -> int:
        """Cancel what runs and return how many handlers did not end in time."""
        stopping = self._events.submit(self._stop(timeout_s))
        try:
            return stopping.result(timeout_s + BLOCKED_S)
        except TimeoutError:
            # A handler blocks the loop's thread: nothing on it can be cancelled.
            stopping.cancel()
            self._stopping = True
            return max(1, len(list(self.running())))

    # The event loop's side.

    async def _work(self, slot: Slot) -> None:
        while True:
            await self._drain(slot)
            if slot.abandoned:
                return
            if self._excess:
                self._retire(slot)
                return
            if not await self._sleep(slot):
                return

    async def _drain(self, slot: Slot) -> None:
        """Handle what is ready, until nothing is or the slot is to leave."""
        window, invocation, clock = self._window, self._invocation, self._clock
        ready, last = window.ready, window.last
        call, posted, cells, place = invocation.call, self._inbox.answered, self._cells, slot.place
        assert slot.task is not None, "it runs in its task"
        cancelling, streak, yielded_s = slot.task.cancelling, slot.streak, 0.0
        publishes = invocation.publishes
        unconfirmed = publishes.open
        while not (slot.abandoned or self._excess):
            try:
                item = ready.popleft() if ready or not last else window.take()
            except IndexError:
                slot.streak = streak
                return
            if invocation.manual or type(item) is not TrackedDelivery:
                await self._do(slot, item)
                continue
            # What `_handle` does, in line: two calls and a coroutine less for each record.
            slot.current = item
            if item.closed or item.assignment.stopping or self._stopping:
                slot.current = None
                continue
            set_current(item)
            cells[place] = item.assignment.mark | item.record_offset
            item.started_s = clock()
            try:
                await call(item)
                if unconfirmed and item in unconfirmed:
                    await publishes.settle(item)
                item.outcome = ACKED
                item.finished_s = clock()
                posted.append(item)
                slot.current = None
            except BaseException as exc:
                self._raised(slot, item, exc)
            streak += 1
            if streak >= STREAK or cancelling():
                streak = 0
                if clock() - yielded_s >= self._yield_interval_s() or cancelling():
                    await clear_cancellation(slot)
                    yielded_s = clock()

    def _raised(self, slot: Slot, delivery: TrackedDelivery, exc: BaseException) -> None:
        """A handler raised whose record is in no lane, and is not answered by hand."""
        result = self._end(slot, delivery, self._outcome_of(slot, delivery, exc))
        if isinstance(result, Paused):
            self._window.put_back(delivery, delivery, result)

    async def _do(self, slot: Slot, item: Unit) -> None:
        """Handle what was taken: records of a lane, a batch, or one record by itself."""
        if isinstance(item, Work):
            await self._handle_lane(slot, item)
        elif isinstance(item, Batch):
            await self._call_batch(slot, item)
        elif isinstance(result := await self._handle(slot, item), Paused):
            self._window.put_back(item, item, result)

    async def _handle_lane(self, slot: Slot, work: Work) -> None:
        """Handle some records of a work."""
        window, manual, call = self._window, self._invocation.manual, self._invocation.call
        publishes = self._invocation.publishes
        unconfirmed = publishes.open
        slot.unit = work
        for _ in range(LANE_TURN):
            if window.recalls != work.recalls or self._excess:
                break
            try:
                delivery = work.popleft()
            except IndexError:
                self._leave(slot, work)
                return
            if manual:
                result = await self._handle(slot, delivery)
            elif not self._begin(slot, delivery):
                result = True
            else:
                # What `_handle` does, without a coroutine for each record.
                try:
                    await call(delivery)
                    if unconfirmed and delivery in unconfirmed:
                        await publishes.settle(delivery)
                    outcome: Outcome | None = ACKED
                except BaseException as exc:
                    outcome = self._outcome_of(slot, delivery, exc)
                result = self._end(slot, delivery, outcome)
                slot.streak += 1
                if slot.streak >= STREAK or slot.cancelling():
                    await clear_cancellation(slot)
            if not self._stays(slot, work, delivery, result):
                return
        slot.unit = None
        window.put_last(work)

    def _stays(
        self, slot: Slot, work: Work, delivery: TrackedDelivery, result: Paused | bool
    ) -> bool:
        """Whether a slot goes on with a work after one of its records; else somebody else does."""
        if slot.abandoned:
            return False
        if isinstance(result, Paused):
            work.appendleft(delivery)
            slot.unit = None
            self._window.put_back(work, delivery, result)
            return False
        if delivery.outcome is not ACKED and delivery.keeps_lane():
            slot.unit = None
            return False
        if not result:
            self._leave(slot, work)
        return result

    async def _call_batch(self, slot: Slot, batch: Batch) -> None:
        """Call the handler with a batch, unless nothing of it may start."""
        slot.unit = batch
        slot.current = next(iter(batch.items), None)
        if not startable(batch, stopping=self._stopping):
            slot.current = slot.unit = None
            self._window.end(batch)
            return
        slot.current = batch.items[0]
        self._places.note(slot.place, batch)
        begin(batch, self._clock())
        outcome, raised = await self._called(slot, batch)
        post(batch, outcome, raised, window=self._window, inbox=self._inbox, now_s=self._clock())
        slot.current = slot.unit = None
        self._places.clear(slot.place, batch)
        if slot.cancelling():
            await clear_cancellation(slot)
        slot.streak += len(batch.items)
        if slot.streak >= STREAK:
            slot.streak = 0
            await yield_to_loop()

    async def _called(
        self, slot: Slot, batch: Batch
    ) -> tuple[Outcome | None, BaseException | None]:
        publishes = self._invocation.publishes
        try:
            await self._invocation.call(batch)
            if batch in publishes.open:
                await publishes.settle(batch)
        except BaseException as exc:
            publishes.drop(batch)
            if slot.thrown_away(exc):
                raise
            if isinstance(exc, asyncio.CancelledError) and slot.cancelled is slot.current:
                return (RELEASED if batch.unanswered() else None), None
            return self._invocation.outcome_of(exc), exc
        return ACKED, None

    def _begin(self, slot: Slot, delivery: TrackedDelivery) -> bool:
        """Note that a handler starts; False where it must not."""
        # `current` before the check: a revoke marks the assignment first and looks at the
        # slots second, so either we see the mark or it sees us.
        slot.current = delivery
        if delivery.closed or delivery.assignment.stopping or self._stopping:
            slot.current = None
            return False
        set_current(delivery)
        self._cells[slot.place] = delivery.assignment.mark | delivery.record_offset
        delivery.started_s = self._clock()
        return True

    def _leave(self, slot: Slot, work: Work) -> None:
        slot.unit = None
        self._window.end(work)

    async def _handle(self, slot: Slot, delivery: TrackedDelivery) -> Paused | bool:
        """Run one delivery to its end; Paused, or whether its work is still this slot's."""
        invocation = self._invocation
        # Before its start can be seen: whoever ends what has started claims it.
        answered = self._arm(delivery) if invocation.manual else None
        if not self._begin(slot, delivery):
            return True
        outcome: Outcome | None = ACKED
        try:
            await invocation.call(delivery)
            if delivery in invocation.publishes.open:
                await invocation.publishes.settle(delivery)
            if answered is not None:
                outcome = None
                await self._answer(slot, answered)
        except BaseException as exc:
            outcome = self._outcome_of(slot, delivery, exc)
            if outcome is None and answered is not None:
                # Somebody else is ending it: the work is not left before that is done.
                with suppress(asyncio.CancelledError):
                    await self._answer(slot, answered)
        result = self._end(slot, delivery, outcome)
        slot.streak += 1
        if slot.streak >= STREAK or slot.cancelling():
            await clear_cancellation(slot)
        return result

    def _end(self, slot: Slot, delivery: TrackedDelivery, outcome: Outcome | None) -> Paused | bool:
        """Post the outcome, if it is one; Paused, or whether the work is still this slot's."""
        if outcome is None:
            result: Paused | bool = delivery.outcome is not None
        elif isinstance(outcome, Paused):
            result = outcome
        else:
            delivery.outcome = outcome
            result = not delivery.closed
            delivery.finished_s = self._clock()
            self._inbox.answered.append(delivery)
        slot.current = None
        return result

    def _outcome_of(
        self, slot: Slot, delivery: TrackedDelivery, exc: BaseException
    ) -> Outcome | None:
        """The outcome of a delivery whose handler raised, None where it has ended already."""
        if slot.thrown_away(exc):
            raise exc
        if isinstance(exc, asyncio.CancelledError) and slot.cancelled is delivery:
            self._invocation.publishes.drop(delivery)
            if delivery.closed or (self._invocation.manual and not delivery.claim()):
                return None
            return RELEASED
        return outcome_of(exc, delivery, self._invocation, self._inbox)

    def _arm(self, delivery: TrackedDelivery) -> asyncio.Future[None]:
        answered: asyncio.Future[None] = self._loop.create_future()
        delivery.arm(partial(self._on_answer, answered))
        return answered

    def _on_answer(self, answered: asyncio.Future[None]) -> None:
        """An answer was given, in any thread."""
        self._loop.call_soon_threadsafe(finish, answered)

    @staticmethod
    async def _answer(slot: Slot, answered: asyncio.Future[None]) -> None:
        """Wait for the answer; after a swallowed cancellation none will come."""
        if slot.cancelled is not slot.current:
            await answered

    async def _sleep(self, slot: Slot) -> bool:
        """Wait for work; False when the executor is stopping."""
        self._cells[slot.place] = 0
        if self._stopping:
            return False
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiter)
        if len(self._window):
            self._wake()
        try:
            await waiter
        except asyncio.CancelledError:
            # Meant for a handler that has ended long ago: a slot is not cancelled.
            uncancel()
            with suppress(ValueError):
                self._idle.remove(waiter)
        return not self._stopping

    def _wake(self) -> None:
        """Wake slots as long as something waits, unless that is being done."""
        if not self._waking:
            self._wake_some(1)

    def _wake_some(self, most: int) -> None:
        """Wake so many, and twice as many when these have left work behind.

        One is enough where handlers wait for nothing: it has done all when this is looked at again.
        """
        count = min(most, len(self._window), len(self._idle))
        self._waking = count > 0
        for _ in range(count):
            self._wake_one()
        if count:
            self._loop.call_soon(self._wake_some, 2 * count)

    def _quit(self, unit: Work | Batch) -> None:
        """An abandoned slot posts nothing more; end its unit here."""
        self._window.end(unit)
