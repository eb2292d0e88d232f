"""Refreshed: the newest answer to a question that takes long, asked again while somebody looks.

However many look, the question is asked once at a time, and no more often than every `every_s`
seconds: what a look costs runs and brokers does not grow with the number of people. Who looks
first, or first after a while, waits for an answer, for at most `patience_s`; nobody else does.
Where a question fails, the answer before it stays, and why there is no newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

from ackfloor import AckfloorError

#: An answer is old after so many times `every_s`: somebody looks again after a while.
OLD = 3

log = logging.getLogger("ackfloor.console")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What is known.

    Attributes:
        value: the newest answer; None if there has been none.
        number: counts the answers and failures, so that who saw one can wait for the next.
        asked_s: when it was asked last, in the clock's seconds.
        error: why the newest question has no answer; empty where it has.
    """

    value: T | None = None
    number: int = 0
    asked_s: float = 0.0
    error: str = ""


class Refreshed(Generic[T]):
    """One question; all methods belong to one event loop.

    Args:
        ask: answers; blocks, and may raise.
        asking: where it runs.
        clock: monotonic seconds.
        every_s: seconds between two questions.
        patience_s: seconds to wait for the first answer.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        asking: Executor,
        clock: Callable[[], float],
        *,
        every_s: float,
        patience_s: float,
    ) -> None:
        self._ask = ask
        self._asking = asking
        self._clock = clock
        self._every_s = every_s
        self._patience_s = patience_s
        self._answer: Answer[T] = Answer()
        self._task: asyncio.Task[None] | None = None
        #: Whether an answer is still to come from it.
        self._coming = False
        self._changed = asyncio.Condition()

    async def look(self) -> Answer[T]:
        """The newest answer; waits for one where there is none, or a look was long ago."""
        self._refresh()
        age_s = self._clock() - self._answer.asked_s
        if not self._answer.number or age_s > OLD * self._every_s:
            await self.after(self._answer.number, self._patience_s)
        return self._answer

    async def now(self, patience_s: float) -> Answer[T] | None:
        """An answer that is at most `every_s` old, or the next one; None if none comes in time."""
        self._refresh()
        before = self._answer
        if before.number and self._clock() - before.asked_s <= self._every_s:
            return before
        found = await self.after(before.number, patience_s)
        return found if found.number > before.number else None

    async def after(self, number: int, patience_s: float) -> Answer[T]:
        """The first answer after one that was seen; the newest if none comes in time."""
        self._refresh()
        try:
            async with asyncio.timeout(patience_s), self._changed:
                await self._changed.wait_for(lambda: self._answer.number > number)
        except TimeoutError:
            pass
        return self._answer

    def close(self) -> None:
        """Ask no more: what it asks is about to close."""
        if self._task is not None:
            self._task.cancel()

    def _refresh(self) -> None:
        """Have it asked as soon as it is due."""
        if not self._coming:
            self._coming = True
            self._task = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        if self._answer.number:
            await asyncio.sleep(max(0.0, self._answer.asked_s + self._every_s - self._clock()))
        asked_s, before = self._clock(), self._answer
        loop = asyncio.get_running_loop()
        try:
            value = await loop.run_in_executor(self._asking, self._ask)
        except AckfloorError as exc:
            self._answer = Answer(before.value, before.number + 1, asked_s, str(exc))
        except Exception as exc:
            log.exception("a question of the console failed")
            why = f"{type(exc).__name__}: {exc}; the console's log has more"
            self._answer = Answer(before.value, before.number + 1, asked_s, why)
        else:
            self._answer = Answer(value, before.number + 1, asked_s)
        finally:
            # Before anybody is woken: who waits for the next one has it asked for.
            self._coming = False
        async with self._changed:
            self._changed.notify_all()
