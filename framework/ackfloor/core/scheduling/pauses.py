"""Pauses: a handler raised `Pause` and takes no records for a while.

Its records stay open and spend no budget. Everything that waits stays where it is. In a long
pause fetching stops as well: what would be read could not be started.

Invariant (tests/framework/core/scheduling/test_pauses.py): what a pause stopped goes on when it
ends, unless the handler's circuit breaker holds it for a reason of its own.
"""

from __future__ import annotations

from ackfloor.core.messages.events import HandlerHeld
from ackfloor.core.records.record import Now
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: A pause is no shorter: one of no time at all would come again without end.
SHORTEST_PAUSE_S = 0.01
#: Seconds of a pause that are worth the prefetch that stopping to fetch throws away.
LONG_PAUSE_S = 1.0


class Pauses:
    """The handlers that asked for a pause."""

    __slots__ = ("_state",)

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    def begin(self, handler: HandlerState, duration_s: float, reason: str, now: Now) -> None:
        """A handler asked for a pause; its executor gives back what it has not started."""
        name, duration_s = handler.rules.name, max(duration_s, SHORTEST_PAUSE_S)
        handler.held_until_s = max(handler.held_until_s, now.mono_s + duration_s)
        handler.held_reason = reason
        # Again: it may have got units since it asked.
        self._state.take_back(handler)
        self._state.events.append(HandlerHeld(name, duration_s, reason))
        if duration_s >= LONG_PAUSE_S:
            handler.rests_in_pause = True
            self._state.rest(handler)

    def tick(self, now: Now) -> None:
        """Lift the pauses that have ended."""
        for handler in self._state.handlers.values():
            if handler.held_until_s and handler.held_until_s <= now.mono_s:
                handler.held_until_s = 0.0
                handler.rests_in_pause = False
                self._state.rest(handler)

    def next_s(self) -> float:
        """Monotonic seconds at which the next pause ends; infinity where there is none."""
        ends = [h.held_until_s for h in self._state.handlers.values() if h.held_until_s]
        return min(ends, default=float("inf"))
