"""ThreadExecutor: one plain `def` handler on threads.

`concurrency` long-lived threads (slots) take from a deque what the executor was given: a delivery,
a work (records of a lane), or a batch. A thread can't be killed: when its delivery's time is up it
is abandoned, its slot goes to a new thread at once, and it ends by itself when its handler returns,
if ever. Threads are daemons, so a stuck one never keeps the process alive.

Fewer threads: whichever ends its record next leaves, until there are none too many. So no handler
is interrupted, and nothing starts before fewer run than may. That, and nothing in a record's
path, takes a lock.

An idle thread sleeps on a lock of its own. It puts itself on the idle list before it looks at
the deque for the last time, and `submit` fills the deque before it looks at the idle list, so
a wake-up can't be lost. Each thread that was woken wakes one more with the first item that it
takes, if there is work left: no stampede of all threads for a
handful of records, or for many whose handler waits for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, Outcome, Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.ports import Stack
from ackfloor.runtime.calls.invoke import Invocation, set_current
from ackfloor.runtime.calls.stacks import thread_stack
from ackfloor.runtime.executors.batch_calls import begin, given_up, post, startable
from ackfloor.runtime.executors.batch_in_flight import Places
from ackfloor.runtime.executors.handler_exceptions import outcome_of
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.executors.thread_slot import Slot, end_lease
from ackfloor.runtime.executors.window import Window
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

#: Records a thread takes of one work before it lets another one have its turn.
LANE_TURN = 64


class ThreadExecutor:
    """Runs one sync handler; implements `ports.Executor`.

    Args:
        invocation: how the handler is called.
        inbox: where finished deliveries go.
        clock: monotonic seconds.
        concurrency: how many deliveries run at once.
        in_flight: where what runs is noted for whoever outlives this process.
    """

    #: What a slot runs on.
    slot_type: type[Slot] = Slot

    def __init__(
        self,
        invocation: Invocation,
        inbox: Inbox,
        clock: Callable[[], float],
        *,
        concurrency: int,
        in_flight: InFlightMemory | None = None,
    ) -> None:
        self._invocation = invocation
        self._inbox = inbox
        self._clock = clock
        self._concurrency = concurrency
        self._in_flight = in_flight or InFlightMemory()
        self._cells = self._in_flight.cells
        self._places = Places(self._in_flight)
        self._window = Window(invocation.handler, inbox)
        self._idle: deque[Slot] = deque()
        self._slots: list[Slot] = []
        self._zombies: set[Slot] = set()
        #: How many slots are too many and have not left yet.
        self._excess = 0
        #: Around `_slots` (a new list at each change, so that it is read without) and `_excess`.
        self._slots_lock = threading.Lock()
        self._started = 0
        self._stopping = False

    @property
    def handler(self) -> str:
        """The handler's name."""
        return self._invocation.handler

    # The owner thread's side.

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._concurrency):
            self._add_slot()

    def _add_slot(self) -> None:
        self._started += 1
        slot = self.slot_type(self, self._started, self._in_flight.take_place())
        with self._slots_lock:
            self._slots = [*self._slots, slot]
        slot.start()

    def _without(self, slot: Slot) -> bool:
        """Strike an abandoned slot from the list; returns whether one is missing now."""
        with self._slots_lock:
            self._slots = [other for other in self._slots if other is not slot]
            too_many = self._excess > 0
            self._excess -= too_many
            return not too_many

    def submit(self, units: Sequence[Unit], *, last: bool = False) -> None:
        """Start these, in this order, behind what was given before; see `ports.Executor`."""
        self._window.add(units, last=last)
        self._wake_one()

    def take_back(self) -> None:
        """Give back what has not started."""
        self._window.give_back()

    def running(self) -> Iterable[TrackedDelivery]:
        """The deliveries that occupy a slot, also those about to start."""
        return [delivery for slot in self._slots for delivery in slot.running()]

    def queued(self) -> int:
        """Items that no thread has taken yet."""
        return len(self._window)

    def stack(self, delivery: TrackedDelivery) -> Stack:
        """Where its handler is; see `ports.Executor`."""
        return thread_stack(next((s.ident for s in self._slots if delivery in s.running()), None))

    def cancel(self, delivery: TrackedDelivery) -> None:
        """Give the slot of a delivery whose time is up to a new thread.

        That of a batch once all of it has ended.
        """
        for slot in self._slots:
            running = slot.running()
            if delivery not in running:
                continue
            # Read once: its thread may end it any time, until its lease is ours.
            unit = slot.unit
            if isinstance(unit, Batch) and not given_up(unit):
                return
            if slot.take_lease(running[0]):
                slot.abandoned = True
                self._zombies.add(slot)
                missing = self._without(slot)
                slot.answered.set()
                if unit is not None:
                    # It has nothing more to say of what it is at.
                    self._window.end(unit)
                if missing and not self._stopping:
                    self._add_slot()
                return

    def abandoned(self) -> int:
        """Abandoned threads whose handlers are still running."""
        return sum(1 for slot in list(self._zombies) if slot.is_alive())

    def resize(self, concurrency: int) -> None:
        """Run at most so many deliveries at once from now on."""
        if self._stopping:
            return
        with self._slots_lock:
            missing = concurrency - len(self._slots)
            self._excess = max(0, -missing)
        for _ in range(missing):
            self._add_slot()
        if self._excess:
            # Idle ones leave at once. All are woken, so that whoever stays looks at the queue after
            # them: a wake-up that reached one that leaves is not lost.
            for _ in range(len(self._idle)):
                self._wake_one()

    def stop(self, timeout_s: float) -> int:
        """Let what runs end and return how many handlers did not end in time.

        A thread's handler can't be interrupted, so this only waits; the wait is in real time.
        """
        self._stopping = True
        while self._idle:
            self._wake_one()
        slots = self._slots
        for slot in slots:
            slot.answered.set()
        until_s = time.monotonic() + timeout_s
        for slot in slots:
            slot.join(max(0.0, until_s - time.monotonic()))
        return sum(1 for slot in (*slots, *self._zombies) if slot.is_alive())

    # The threads' side.

    def broke(self, slot: Slot, exc: BaseException) -> None:
        """A thread ends with what is no handler's exception; what it had in hand stays open."""
        if slot.abandoned:
            return
        with self._slots_lock:
            self._slots = [other for other in self._slots if other is not slot]
        self._inbox.broken.append(exc)

    def thread_ended(self, slot: Slot) -> None:
        """A thread is about to end."""
        self._zombies.discard(slot)
        self._places.give_back(slot.place)

    def work(self, slot: Slot) -> None:
        """Take and handle deliveries; runs in the slot's own thread."""
        while True:
            self._drain(slot)
            if slot.abandoned or (self._excess and self._retire(slot)):
                return
            if not len(self._window) and not self._sleep(slot):
                return

    def _drain(self, slot: Slot) -> None:
        """Handle what is ready, until nothing is or the slot is to leave."""
        window, invocation, clock = self._window, self._invocation, self._clock
        ready, last = window.ready, window.last
        call, posted, cells, place = invocation.call, self._inbox.answered, self._cells, slot.place
        publishes = invocation.publishes
        unconfirmed = publishes.open
        woken = True
        while not (slot.abandoned or self._excess):
            try:
                item = ready.popleft() if ready or not last else window.take()
            except IndexError:
                return
            if woken:
                woken = False
                if self._idle and len(window):
                    self._wake_one()
            if invocation.manual or type(item) is not TrackedDelivery:
                self._do(slot, item)
                continue
            # What `_handle` does, in line: two calls less for each record.
            lease = slot.lease = [item]
            if item.closed or item.assignment.stopping or self._stopping:
                end_lease(slot, lease)
                continue
            set_current(item)
            cells[place] = item.assignment.mark | item.record_offset
            item.started_s = clock()
            try:
                call(item)
                if unconfirmed and item in unconfirmed:
                    publishes.settle_sync(item)
                item.outcome = ACKED
                item.finished_s = clock()
                posted.append(item)
            except BaseException as exc:
                self._raised(item, exc)
            try:
                lease.pop()
            except IndexError:
                slot.abandoned = True

    def _raised(self, delivery: TrackedDelivery, exc: BaseException) -> None:
        """A handler raised whose record is in no lane, and is not answered by hand."""
        result = self._end(delivery, outcome_of(exc, delivery, self._invocation, self._inbox))
        if isinstance(result, Paused):
            self._window.put_back(delivery, delivery, result)

    def _do(self, slot: Slot, item: Unit) -> None:
        """Handle what was taken: records of a lane, a batch, or one record by itself."""
        if isinstance(item, Work):
            self._handle_lane(slot, item)
        elif isinstance(item, Batch):
            self._call_batch(slot, item)
        elif isinstance(result := self._handle(slot, item), Paused):
            self._window.put_back(item, item, result)

    def _retire(self, slot: Slot) -> bool:
        """Whether a slot ends because there are too many; another may have been quicker."""
        with self._slots_lock:
            if not self._excess:
                return False
            self._excess -= 1
            self._slots = [other for other in self._slots if other is not slot]
        return True

    def _handle_lane(self, slot: Slot, work: Work) -> None:
        """Handle some records of a work."""
        window = self._window
        slot.unit = work
        for _ in range(LANE_TURN):
            if window.recalls != work.recalls or self._excess:
                break
            try:
                delivery = work.popleft()
            except IndexError:
                self._leave(slot, work)
                return
            result = self._handle(slot, delivery)
            if slot.abandoned:
                return
            if isinstance(result, Paused):
                work.appendleft(delivery)
                slot.unit = None
                self._window.put_back(work, delivery, result)
                return
            if delivery.outcome is not ACKED and delivery.keeps_lane():
                slot.unit = None
                return
            if not result:
                self._leave(slot, work)
                return
        slot.unit = None
        window.put_last(work)
        self._wake_one()

    def _call_batch(self, slot: Slot, batch: Batch) -> None:
        """Call the handler with a batch, unless nothing of it may start."""
        slot.unit = batch
        lease = slot.lease = batch.items[:1]
        if not startable(batch, stopping=self._stopping):
            self._window.end(batch)
            if lease:
                end_lease(slot, lease)
            slot.unit = None
            return
        lease = slot.lease = batch.items[:1]
        self._places.note(slot.place, batch)
        begin(batch, self._clock())
        raised: BaseException | None = None
        outcome: Outcome = ACKED
        publishes = self._invocation.publishes
        try:
            self._invocation.call(batch)
            if batch in publishes.open:
                publishes.settle_sync(batch)
        except BaseException as exc:
            publishes.drop(batch)
            raised = exc
            outcome = self._invocation.outcome_of(exc)
        post(batch, outcome, raised, window=self._window, inbox=self._inbox, now_s=self._clock())
        end_lease(slot, lease)
        slot.unit = None
        self._places.clear(slot.place, batch)

    def _leave(self, slot: Slot, work: Work) -> None:
        slot.unit = None
        self._window.end(work)

    def _handle(self, slot: Slot, delivery: TrackedDelivery) -> Paused | bool:
        """Run one delivery to its end; Paused, or whether its work is still this slot's."""
        # The lease before the check: a revoke marks the assignment first and looks at the
        # slots second, so either we see the mark or it sees us.
        lease = slot.lease = [delivery]
        if delivery.closed or delivery.assignment.stopping or self._stopping:
            end_lease(slot, lease)
            return True
        invocation = self._invocation
        if invocation.manual:
            # A new one each time: an answer from another thread may ring late.
            slot.answered = slot.new_answer()
            delivery.arm(slot.answered.set)
        set_current(delivery)
        self._cells[slot.place] = delivery.assignment.mark | delivery.record_offset
        delivery.started_s = self._clock()
        outcome: Outcome | None = ACKED
        try:
            invocation.call(delivery)
            if delivery in invocation.publishes.open:
                invocation.publishes.settle_sync(delivery)
            if invocation.manual:
                outcome = None
                slot.answered.wait()
        except BaseException as exc:
            outcome = outcome_of(exc, delivery, invocation, self._inbox)
            if outcome is None:
                # Somebody else is ending it: the work is not left before that is done.
                slot.answered.wait()
        result = self._end(delivery, outcome)
        end_lease(slot, lease)
        return result

    def _end(self, delivery: TrackedDelivery, outcome: Outcome | None) -> Paused | bool:
        """Post the outcome, if it is one; Paused, or whether the work is still this slot's."""
        if outcome is None:
            return delivery.outcome is not None
        if isinstance(outcome, Paused):
            return outcome
        delivery.outcome = outcome
        still_ours = not delivery.closed
        delivery.finished_s = self._clock()
        self._inbox.answered.append(delivery)
        return still_ours

    def _sleep(self, slot: Slot) -> bool:
        """Wait for work; False when the executor is stopping."""
        self._cells[slot.place] = 0
        if self._stopping:
            return False
        self._idle.append(slot)
        if len(self._window) or self._excess or self._stopping:
            self._wake_one()
        slot.bell.acquire()
        return not self._stopping

    def _wake_one(self) -> None:
        try:
            self._idle.popleft().bell.release()
        except IndexError:
            return
