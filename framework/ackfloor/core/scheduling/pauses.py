"""Pauses: a handler takes no records for a while, because it raised `Pause` or an operator says so.

The two know nothing of each other, and the later end counts. The handler's records stay open and
spend no budget. Everything that waits stays where it is; what runs goes on. In a long pause
fetching stops as well: what would be read could not be started.

Invariant (tests/framework/core/scheduling/test_pauses.py): what a pause stopped goes on when it
ends, unless the handler's circuit breaker holds it for a reason of its own.
"""

from __future__ import annotations

from math import inf

from ackfloor.core.messages.events import HandlerHeld
from ackfloor.core.records.record import Now
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: A pause is no shorter: one of no time at all would come again without end.
SHORTEST_PAUSE_S = 0.01
#: Seconds of a pause that are worth the prefetch that stopping to fetch throws away.
LONG_PAUSE_S = 1.0


class Pauses:
    """The handlers that asked for a pause, or that an operator paused."""

    __slots__ = ("_state",)

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    def begin(self, handler: HandlerState, duration_s: float, reason: str, now: Now) -> None:
        """A handler asked for a pause; its executor gives back what it has not started."""
        name, duration_s = handler.rules.name, max(duration_s, SHORTEST_PAUSE_S)
        handler.asked_until_s = max(handler.asked_until_s, now.mono_s + duration_s)
        handler.held_reason = reason
        self._state.events.append(HandlerHeld(name, duration_s, reason))
        self._obey(handler, now)

    def pause(self, handler: HandlerState, until_s: float, reason: str, now: Now) -> None:
        """An operator pauses a handler, or changes until when or why.

        Args:
            handler: the handler.
            until_s: monotonic seconds at which that ends by itself; infinity for never.
            reason: why, for people.
            now: the time.
        """
        handler.paused_until_s, handler.paused_reason = until_s, reason
        self._obey(handler, now)

    def resume(self, handler: HandlerState, now: Now) -> None:
        """An operator's pause is over; one that the handler asked for goes on."""
        handler.paused_until_s, handler.paused_reason = 0.0, ""
        # While it was paused nothing was tried: that says nothing about what it depends on.
        handler.circuit.breaker.rested(now.mono_s)
        self._obey(handler, now)

    def _obey(self, handler: HandlerState, now: Now) -> None:
        """Hold a handler until its later pause ends, or let it go on."""
        handler.held_until_s = until_s = max(handler.asked_until_s, handler.paused_until_s)
        if until_s:
            # Also where it is in a pause already: it may have got units since it asked.
            self._state.take_back(handler)
        is_long = handler.rests_in_pause or until_s - now.mono_s >= LONG_PAUSE_S
        handler.rests_in_pause = bool(until_s) and is_long
        self._state.rest(handler)

    def tick(self, now: Now) -> None:
        """Lift the pauses that have ended."""
        for handler in self._state.handlers.values():
            if not handler.held_until_s:
                continue
            if 0 < handler.asked_until_s <= now.mono_s:
                handler.asked_until_s = 0.0
                self._obey(handler, now)
            if 0 < handler.paused_until_s <= now.mono_s:
                self.resume(handler, now)

    def next_s(self) -> float:
        """Monotonic seconds at which the next pause ends; infinity where none does by itself."""
        handlers = self._state.handlers.values()
        ends = [end_s for h in handlers for end_s in (h.asked_until_s, h.paused_until_s) if end_s]
        return min(ends, default=inf)
