"""Searches: answers to what single requests ask, few at once and each within a time.

A search costs this machine or Kafka something each time, unlike what everybody sees. So only a few
run at once, of one person no more than half of those, some more wait, and the rest is refused.

Invariant. A thread counts as taken until its search returns, also where nobody waits any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar
from weakref import WeakValueDictionary

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
        #: Names of people -> their turns; who neither waits nor searches is forgotten.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

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
        turn = self._turns.get(person.name)
        if turn is None:
            turn = self._turns[person.name] = asyncio.Semaphore(EACH_AT_ONCE)
        await turn.acquire()
        loop = asyncio.get_running_loop()
        running = self._threads.submit(search)

        def over(_: object) -> None:
            # The console may have ended before the search.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(turn.release)

        running.add_done_callback(over)
        return await asyncio.wrap_future(running)
