"""Searches: answers to what single requests ask, few at once and each within a time.

A search costs this machine or Kafka something each time, unlike what everybody sees. So only a few
run at once, of one person no more than half of those, some more wait, and the rest is refused.

Invariants. A thread counts as taken until its search returns, also where nobody waits any more. The
last free thread is for somebody of whom none is taken: two people do not keep a third one waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.access.shares import Busy, Shares

T = TypeVar("T")

#: So many run at once, of everybody and of one person.
AT_ONCE: Final = 4
EACH_AT_ONCE: Final = 2
#: So many are asked for at once, likewise.
MOST_WAITING: Final = 40
EACH_WAITING: Final = 10
#: Seconds that one waits for its answer.
PATIENCE_S: Final = 15.0


class Searches:
    """Those of one console; all methods belong to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "console-search")
        self._waiting = Shares("searches", "try again in a few seconds")
        #: Names of people -> how many threads are theirs.
        self._taken = Counter[str]()
        #: Who waits for a thread, and whose search that is; the first comes first.
        self._turns: dict[asyncio.Future[None], str] = {}

    async def answer(self, search: Callable[[], T], person: Person) -> T:
        """What a search returns.

        Args:
            person: who asks for it.

        Raises:
            Busy: too many are asked for, or it takes too long.
        """
        with self._waiting.taken(person, MOST_WAITING, EACH_WAITING):
            try:
                return await asyncio.wait_for(self._in_turn(search, person), PATIENCE_S)
            except TimeoutError:
                raise Busy(504, f"no answer came within {PATIENCE_S:g} s: try again") from None

    async def _in_turn(self, search: Callable[[], T], person: Person) -> T:
        """Search when this person has a turn: others find a thread meanwhile."""
        await self._turn(person.name)
        loop = asyncio.get_running_loop()
        running = self._threads.submit(search)

        def over(_: object) -> None:
            # The console may have ended before the search.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._give_back, person.name)

        running.add_done_callback(over)
        return await asyncio.wrap_future(running)

    async def _turn(self, name: str) -> None:
        """Take a thread for somebody, once they may have one."""
        if self._may_take(name):
            self._taken[name] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._turns[turn] = name
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It came too late: nobody waits for it any more.
                self._give_back(name)
            raise
        finally:
            self._turns.pop(turn, None)

    def _may_take(self, name: str) -> bool:
        free, own = AT_ONCE - self._taken.total(), self._taken[name]
        return free > 0 if not own else free > 1 and own < EACH_AT_ONCE

    def _give_back(self, name: str) -> None:
        """Free a thread, for the first of those who may have it."""
        self._taken[name] -= 1
        # Who has none is forgotten.
        self._taken = +self._taken
        for turn, whose in self._turns.items():
            if not turn.done() and self._may_take(whose):
                self._taken[whose] += 1
                turn.set_result(None)
