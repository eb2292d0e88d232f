"""Searches: answers to what single requests ask, few at once and each within a time.

A search costs this machine or Kafka something each time, unlike what everybody sees. So only a few
run at once, some more wait, and the rest is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ackfloor_monitoring.console.access.gate import Refused
from ackfloor_monitoring.console.access.roles import Person
from ackfloor_monitoring.console.access.shares import Shares

T = TypeVar("T")

#: So many run at once, and so many are asked for at once, of everybody and of one person.
AT_ONCE: Final = 4
MOST_WAITING: Final = 40
EACH_WAITING: Final = 10
#: Seconds that one waits for its answer.
PATIENCE_S: Final = 15.0


class Searches:
    """Those of one console; all methods belong to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "console-search")
        self._waiting = Shares("searches", "try again in a few seconds")

    async def answer(self, search: Callable[[], T], person: Person) -> T:
        """What a search returns.

        Args:
            person: who asks for it.

        Raises:
            Refused: too many are asked for, or it takes too long.
        """
        with self._waiting.taken(person, MOST_WAITING, EACH_WAITING):
            running = asyncio.get_running_loop().run_in_executor(self._threads, search)
            try:
                return await asyncio.wait_for(running, PATIENCE_S)
            except TimeoutError:
                raise Refused(504, f"no answer came within {PATIENCE_S:g} s: try again") from None
