"""Executors: all handlers' executors, as the owner thread sees them.

What one handler does to its slots is its executor's business; what follows from the sum of it is
here: who is overdue and still runs, who runs for a partition that has left, when so many handlers
were abandoned that the process should be replaced, and the faults that report it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf

from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.faults import Faults
from ackfloor.ports import Clock, Executor
from ackfloor.runtime.executors.async_executor import AsyncExecutor
from ackfloor.runtime.executors.event_loop import EventLoop
from ackfloor.runtime.executors.process.process_executor import ProcessExecutor
from ackfloor.runtime.logging.delivery_log import DeliveryLog, GivenUp
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory

#: Seconds that cancelled handlers have for their clean-up at the end of a worker.
CANCEL_S = 1.0
#: Seconds without a sign of life from the event loop that are worth a fault.
BLOCKED_S = 5.0


class Executors:
    """The executors of one worker; only the owner thread calls it.

    Args:
        by_name: handler name -> what runs it.
        clock: both clocks.
        delivery_log: what is logged of deliveries.
        max_abandoned: abandoned handlers beyond which the worker must be replaced.
        events: the event loop that async handlers run on.
        in_flight: where the executors note what runs.
    """

    def __init__(
        self,
        by_name: Mapping[str, Executor],
        clock: Clock,
        delivery_log: DeliveryLog,
        *,
        max_abandoned: int,
        events: EventLoop,
        in_flight: InFlightMemory | None = None,
    ) -> None:
        self.by_name = by_name
        self._clock = clock
        self._delivery_log = delivery_log
        self._max_abandoned = max_abandoned
        self._events = events
        self.in_flight = in_flight or InFlightMemory()

    def start(self) -> None:
        """Start them all."""
        for executor in self.by_name.values():
            executor.start()

    def running(self) -> Iterator[TrackedDelivery]:
        """The deliveries that occupy a slot."""
        return chain.from_iterable(executor.running() for executor in self.by_name.values())

    def cancel(self, delivery: TrackedDelivery) -> None:
        """A delivery's time is up."""
        rules = delivery.assignment.handler.rules
        executor = self.by_name[rules.name]
        if not rules.killable:
            given_up = _given_up(executor)
            self._delivery_log.timed_out(delivery, given_up, self._clock.monotonic())
        executor.cancel(delivery)

    def cancel_answered(self, now: Now) -> None:
        """Give up handlers that go on at their deadline, long after an answer by hand."""
        for executor in self.by_name.values():
            for delivery in executor.running():
                if delivery.closed and _answered_by_hand(delivery) and _overdue(delivery, now):
                    self._delivery_log.goes_on(delivery, _given_up(executor), now.mono_s)
                    executor.cancel(delivery)

    def cancel_closed(self) -> None:
        """Free the slots of handlers that still run on partitions that have left."""
        now_s = self._clock.monotonic()
        for executor in self.by_name.values():
            for delivery in executor.running():
                if delivery.assignment.closed:
                    if delivery.started_s:
                        self._delivery_log.left_running(delivery, _given_up(executor), now_s)
                    executor.cancel(delivery)

    def stop(self, *, forced: bool) -> int:
        """Cancel what still runs; returns how many deliveries that cuts short."""
        cut_short = sum(d.started_s > 0 and not d.closed for d in self.running())
        until_s = self._clock.monotonic() + (0.0 if forced and cut_short else CANCEL_S)
        for executor in self.by_name.values():
            executor.stop(max(0.0, until_s - self._clock.monotonic()))
        return cut_short

    def worn_out(self) -> bool:
        """Whether so many handlers were abandoned that the process should be replaced."""
        return any(e.abandoned() > self._max_abandoned for e in self.by_name.values())

    def note_faults(self, faults: Faults, now: Now) -> None:
        """Set the faults that are in force, and clear the others."""
        for name, executor in self.by_name.items():
            count = executor.abandoned()
            if count:
                text = (
                    f"{count} abandoned handlers of {name} still run; past "
                    f"{self._max_abandoned} the worker is replaced"
                )
                faults.put("abandoned", name, text, now.wall_ms)
            else:
                faults.clear("abandoned", name)
            if isinstance(executor, ProcessExecutor):
                if trouble := executor.trouble():
                    faults.put("processes", name, f"no process starts: {trouble}", now.wall_ms)
                else:
                    faults.clear("processes", name)
        silence_s = self._events.silence_s()
        if silence_s >= BLOCKED_S:
            text = (
                f"nothing has run on the event loop for {silence_s:.0f} s: {self._events.users} "
                "blocks it; write it as a `def`, or use asyncio.to_thread"
            )
            faults.put("event_loop", "asyncio", text, now.wall_ms)
        else:
            faults.clear("event_loop", "asyncio")


def _given_up(executor: Executor) -> GivenUp:
    """What becomes of a handler that this executor gives up."""
    if isinstance(executor, AsyncExecutor):
        return GivenUp.CANCELLED
    return GivenUp.KILLED if isinstance(executor, ProcessExecutor) else GivenUp.ABANDONED


def _answered_by_hand(delivery: TrackedDelivery) -> bool:
    return delivery.assignment.handler.rules.by_hand and delivery.outcome is not None


def _overdue(delivery: TrackedDelivery, now: Now) -> bool:
    return (delivery.deadline_s or inf) <= now.mono_s
