"""Scheduler: what each handler's executor is given next.

Theory. What may start waits in its handler's queue (`handler_queue`). Once a turn the owner thread
asks for what an executor has room for. A handler in a pause gets nothing; one whose breaker is not
closed gets trials; any other gets its queue in order. While a crash suspect runs alone, no executor
gets anything else.

Invariants (tests/framework/core/scheduling/test_scheduler.py):

R1  nothing is given for a handler in a pause, and nothing but trials while its breaker is open,
    and what is to run alone.
R2  while a record is to run alone, nothing else is given; it is, also after it was given back.
R3  what the executor gave back is the first to be given again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.records.record import Now
from ackfloor.core.scheduling.breaker_control import Breakers
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState


class Scheduler:
    """What executors are given, and what they give back."""

    __slots__ = ("_breakers", "_state")

    def __init__(self, state: WorkerState, breakers: Breakers) -> None:
        self._state = state
        self._breakers = breakers

    def next_units(self, handler: HandlerState, queued: int, now: Now) -> Sequence[Unit]:
        """What a handler's executor is to be given now.

        Args:
            handler: the handler.
            queued: what its executor has and has not started.
            now: the time.
        """
        queue = handler.queue
        if handler.held_until_s:
            return ()
        tripped = handler.circuit.breaker.is_open
        if queue.exclusive or self._state.exclusive or tripped:
            queue.pass_over(queued)
        if queue.exclusive:
            return queue.take_exclusive()
        if self._state.exclusive:
            return ()
        if tripped:
            return self._breakers.trials(handler, queued, now)
        if not queue.items:
            return ()
        room = queue.room(queued, handler.rules.concurrency, now.mono_s)
        if room <= 0:
            return ()
        if handler.batch_buffer is not None:
            return queue.take_batches(room, handler.rules)
        return queue.take(room)

    def returned(self, handler: HandlerState, units: Sequence[Unit]) -> None:
        """An executor gave back what it has not started."""
        handler.queue.returned(units)
        if self._state.exclusive and handler.suspect is not None:
            # All others wait for it, so it must not wait among them.
            handler.queue.make_exclusive(handler.suspect)
