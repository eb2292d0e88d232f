"""Scheduler: what each handler's executor is given next.

Theory. What may start waits in its handler's queue (`handler_queue`). Once a turn the owner thread
asks for what an executor has room for. A handler in a pause gets nothing; one whose breaker is not
closed gets trials; any other gets its queue in order, with what is due of noisy and hanging keys
apart, for slots that have nothing else. While a crash suspect runs alone, no executor gets anything
else. Where the handler has a rate for the group, whatever is given takes tokens (`handler_rate`).

A handler that holds too many bytes of outputs gets nothing more, or they would have no bound. They
may have to wait for the floor, though (`transactional_outbox`, T3). So the oldest open record of
each partition starts all the same, and what is before it in its lane. It holds outputs itself then,
or moves the floor.

Invariants (tests/framework/core/scheduling/test_scheduler.py):

R1  nothing is given for a handler in a pause, and nothing but trials while its breaker is open,
    and what is to run alone.
R2  while a record is to run alone, nothing else is given; it is, also after it was given back.
R3  what the executor gave back is the first to be given again.
R4  of a handler with a rate no more is given than there are tokens, whichever way it is given.
R5  what is given for slots that have nothing else is of noisy and hanging keys, while nothing of
    others waits.
R6  while outputs are too much, only the oldest open record of a partition is given, or trials
    (tests/framework/core/outbox/test_output_limits.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.handler_rate import HandlerRate
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
        rate = handler.rate
        if rate is None:
            return self._next(handler, queued, now, None)
        tokens = rate.look(self._state.rate_of(handler), handler.rules.batch or 1, now.mono_s)
        handler.queue.lacked = 0
        units = self._next(handler, queued, now, tokens)
        self._note_given(handler, rate, units)
        return units

    def _next(
        self, handler: HandlerState, queued: int, now: Now, tokens: int | None
    ) -> Sequence[Unit]:
        """`next_units`, and no more than so many records; None for no limit."""
        queue = handler.queue
        if handler.held_until_s:
            return ()
        tripped = handler.circuit.breaker.is_open
        if queue.exclusive or self._state.exclusive or tripped:
            queue.pass_over(queued)
        if queue.exclusive:
            return queue.take_exclusive(tokens)
        if self._state.exclusive:
            return ()
        if tripped:
            queue.gather()
            return self._breakers.trials(handler, queued, now, tokens)
        if handler.outputs_full:
            return self._oldest(handler, queued, tokens)
        return self._in_order(handler, queued, now, tokens) if queue.items else ()

    def _oldest(self, handler: HandlerState, queued: int, tokens: int | None) -> Sequence[Unit]:
        """What the floors of a handler's partitions wait for and has not started."""
        handler.queue.pass_over(queued)
        wanted: set[int] = set()
        for assignment in self._state.assignments.values():
            oldest = assignment.tracker.oldest() if assignment.handler is handler else None
            if oldest is not None and not oldest.started_s:
                wanted |= {id(oldest), id(oldest.lane)}
        return handler.queue.take_these(wanted, tokens) if wanted else ()

    @staticmethod
    def _in_order(
        handler: HandlerState, queued: int, now: Now, tokens: int | None
    ) -> Sequence[Unit]:
        queue = handler.queue
        room = queue.room(queued, handler.rules.concurrency, now.mono_s) + queue.unstarted_last()
        if room <= 0:
            return ()
        if handler.batch_buffer is not None:
            return queue.take_batches(room, handler.rules, tokens)
        if tokens is None:
            return queue.take(room)
        # Each record of a lane by itself: one that takes long would hold the tokens of those behind
        # it, which others could use.
        return queue.take(min(room, tokens), of_a_lane=1)

    def next_last(self, handler: HandlerState, queued: int, now: Now) -> Sequence[Unit]:
        """What its executor is to be given now for slots that have nothing else; see `next_units`,
        which is asked before."""
        queue, rate = handler.queue, handler.rate
        if queue.fair is None or not queue.fair.waiting or queue.items:
            return ()
        if handler.held or queue.exclusive or self._state.exclusive or handler.outputs_full:
            return ()
        concurrency, hanging_room = handler.rules.concurrency, handler.hanging_room()
        room = queue.room(queued, concurrency, now.mono_s)
        if rate is None:
            return queue.take_last(room, hanging_room, concurrency)
        room = min(room, rate.tokens)
        units = queue.take_last(room, hanging_room, concurrency, of_a_lane=1)
        self._note_given(handler, rate, units)
        return units

    # Rates.

    @staticmethod
    def _note_given(handler: HandlerState, rate: HandlerRate, units: Sequence[Unit]) -> None:
        queue = handler.queue
        rate.gave(units)
        waits = len(queue) > 0 or handler.circuit.breaker.is_open
        rate.note(waits=waits and not handler.held_until_s, needed=queue.lacked)
        if rate.lacking:
            queue.took_tokens(units)

    def next_s(self) -> float:
        """Monotonic seconds at which a handler may have a token that something waits for."""
        rates = [h.rate for h in self._state.handlers.values() if h.rate is not None]
        return min((rate.next_s() for rate in rates), default=inf)

    def rationed(self) -> bool:
        """Whether all that waits for a slot waits for its handler's rate."""
        handlers = self._state.handlers.values()
        return all(h.rate is not None and h.rate.lacking for h in handlers if len(h.queue))

    def returned(self, handler: HandlerState, units: Sequence[Unit]) -> None:
        """An executor gave back what it has not started."""
        if handler.rate is not None:
            handler.rate.returned(units)
        handler.queue.returned(units)
        if self._state.exclusive and handler.suspect is not None:
            # All others wait for it, so it must not wait among them.
            handler.queue.make_exclusive(handler.suspect)
