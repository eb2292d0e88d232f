"""Window: what the slots of one handler take from: what was given and has not been started.

Slots take from `ready` with `popleft`, which is atomic. The owner thread adds, and asks for
everything back; a slot whose handler asks for a pause gives everything back by itself.

A slot notes `recalls` before it takes a work, and ends the work when that has changed. A work that
it leaves for another one's turn is put at the end here only if `recalls` is still the same, and is
given back if it changed in that moment: so nothing stays here that was asked back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any

from ackfloor.core.batch import Batch
from ackfloor.core.lanes import Work
from ackfloor.core.queue import Unit
from ackfloor.runtime.inbox import Inbox


class Window:
    """Units that no slot has taken yet.

    Args:
        handler: whose they are.
        inbox: where they are given back.

    Attributes:
        ready: what slots take from.
        recalls: another number each time that everything was asked back.
    """

    __slots__ = ("_handler", "_inbox", "_numbers", "ready", "recalls")

    def __init__(self, handler: str, inbox: Inbox) -> None:
        #: Deliveries and works, or batches: each executor knows which.
        self.ready: deque[Any] = deque()
        self.recalls = 0
        self._handler = handler
        self._inbox = inbox
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self.ready)

    def give_back(self, first: Iterable[Unit] = ()) -> None:
        """Give everything back that nobody has taken, behind `first`; any thread may."""
        self.recalls = next(self._numbers)
        for unit in first:
            self._inbox.returned.append((self._handler, unit))
        self._empty()

    def end(self, unit: Work | Batch) -> None:
        """A slot has ended a unit, or was given up; what is left in it, it has not handled."""
        self._inbox.ended.append((self._handler, unit))

    def put_last(self, work: Work, recalls: int) -> None:
        """A slot leaves a work that has more; `recalls` is the number of when it took it."""
        if self.recalls != recalls:
            self.end(work)
            return
        self.ready.append(work)
        if self.recalls != recalls:
            self._empty()

    def _empty(self) -> None:
        while True:
            try:
                self._inbox.returned.append((self._handler, self.ready.popleft()))
            except IndexError:
                return
