"""Window: what the slots of one handler take from: what was given and has not been started.

Slots take from `ready` with `popleft`, which is atomic. The owner thread adds, and asks for
everything back; a slot whose handler asks for a pause gives everything back by itself.

Who visits a lane notes `recalls` before, and leaves the lane when that has changed. A lane that it
left for another one's turn is put at the end here only if `recalls` is still the same, and is given
back if it changed in that moment: so nothing stays here that was asked back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any

from ackfloor.core.batch import Batch
from ackfloor.core.lanes import Run
from ackfloor.core.queue import Item
from ackfloor.runtime.inbox import Inbox


class Window:
    """Items that no slot has taken yet.

    Args:
        handler: whose they are.
        inbox: where they are given back.

    Attributes:
        ready: what slots take from.
        recalls: another number each time that everything was asked back.
    """

    __slots__ = ("_handler", "_inbox", "_numbers", "ready", "recalls")

    def __init__(self, handler: str, inbox: Inbox) -> None:
        #: Deliveries and runs, or batches: each executor knows which.
        self.ready: deque[Any] = deque()
        self.recalls = 0
        self._handler = handler
        self._inbox = inbox
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self.ready)

    def give_back(self, first: Iterable[Item | Batch] = ()) -> None:
        """Give everything back that nobody has taken, behind `first`; any thread may."""
        self.recalls = next(self._numbers)
        for item in first:
            self._inbox.returned.append((self._handler, item))
        self._empty()

    def put_last(self, run: Run, recalls: int) -> None:
        """A slot leaves a lane that has more; `recalls` is the number of when it came."""
        if self.recalls != recalls:
            self._inbox.left.append((self._handler, run))
            return
        self.ready.append(run)
        if self.recalls != recalls:
            self._empty()

    def _empty(self) -> None:
        while True:
            try:
                self._inbox.returned.append((self._handler, self.ready.popleft()))
            except IndexError:
                return
