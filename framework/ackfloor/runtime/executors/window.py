"""Window: what the slots of one handler take from: what was given and has not been started.

Slots take from `ready` with `popleft`, which is atomic, and from `last` when nothing is there. The
owner thread adds, and asks for everything back; a slot whose handler asks for a pause gives
everything back by itself.

A work has the number of recalls from when it was given. A slot ends it, after the record at hand,
when that is not the number any more; so does a slot that takes one that another has left for the
next one's turn in the moment in which everything was asked back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import Paused
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.runtime.executors.inbox import Inbox, PauseRequest


class Window:
    """Units that no slot has taken yet.

    Args:
        handler: whose they are.
        inbox: where they are given back.

    Attributes:
        ready: what slots take from.
        last: what they take from when `ready` is empty.
        recalls: another number each time that everything was asked back.
    """

    __slots__ = ("_handler", "_inbox", "_numbers", "last", "ready", "recalls")

    def __init__(self, handler: str, inbox: Inbox) -> None:
        #: Deliveries and works, or batches: each executor knows which.
        self.ready: deque[Any] = deque()
        self.last: deque[Any] = deque()
        self.recalls = 0
        self._handler = handler
        self._inbox = inbox
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self.ready) + len(self.last)

    def add(self, units: Sequence[Unit], *, last: bool = False) -> None:
        """Let slots take these, behind what is here; `last` only when nothing else is."""
        first = units[0]
        if not isinstance(first, Batch) and first.lane is not None:
            for unit in units:
                if isinstance(unit, Work):
                    unit.recalls = self.recalls
                    unit.last = last
        (self.last if last else self.ready).extend(units)

    def take(self) -> Any:
        """What a slot is to do next.

        Raises:
            IndexError: nothing is here.
        """
        try:
            return self.ready.popleft()
        except IndexError:
            return self.last.popleft()

    def give_back(self, first: Iterable[Unit] = ()) -> None:
        """Give back everything that no slot has taken, behind `first`; any thread may."""
        self.recalls = next(self._numbers)
        for unit in first:
            self._inbox.returned.append((self._handler, unit))
        self._empty()

    def end(self, unit: Work | Batch) -> None:
        """A slot has ended a unit, or was given up; what is left in it, it has not handled."""
        self._inbox.finished.append((self._handler, unit))

    def put_last(self, work: Work) -> None:
        """A slot leaves a work that has more, for another one's turn."""
        if self.recalls != work.recalls:
            self.end(work)
            return
        (self.last if work.last else self.ready).append(work)
        if self.recalls != work.recalls:
            self._empty()

    def put_back(
        self, unit: TrackedDelivery | Work, delivery: TrackedDelivery, outcome: Paused
    ) -> None:
        """A delivery asked for a pause: it is given back, and with it all that has not started.

        Args:
            unit: the delivery, or the work whose first it is again.
            delivery: what asked for the pause.
            outcome: for how long, and why.
        """
        delivery.reopen()
        if delivery.closed:
            # It asks too late: the delivery has ended, and is skipped when it is taken.
            delivery.assignment.stats.late_answers.append(None)
            self._inbox.returned.append((self._handler, unit))
            return
        self.ask_pause(outcome)
        self.give_back((unit,))

    def ask_pause(self, outcome: Paused) -> None:
        """A handler asks for a pause; before it gives back what has not started.

        The owner thread that finds something given back has the request as well, and does not
        start it again at once.
        """
        request = PauseRequest(self._handler, outcome.duration_s, outcome.reason)
        self._inbox.pause_requests.append(request)

    def _empty(self) -> None:
        while True:
            try:
                self._inbox.returned.append((self._handler, self.take()))
            except IndexError:
                return
