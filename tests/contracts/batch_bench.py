"""BatchBench: executors of batch handlers under the contract of all executors, with batches of one.

What such an executor posts is ended by the owner thread; here that is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.forming import form
from ackfloor.core.outcomes import Held
from ackfloor.core.queue import Item
from ackfloor.ports import Executor
from tests.contracts.executor_contract import Bench


class _Owner(deque[tuple[str, Batch]]):
    """What the owner thread does with a batch of one, at once."""

    def __init__(self, bench: BatchBench, executors: list[Executor]) -> None:
        super().__init__()
        self._bench = bench
        self._inbox = bench.inbox
        self._executors = executors

    def append(self, item: tuple[str, Batch]) -> None:
        """A call has ended, or was given up."""
        handler, batch = item
        held = isinstance(batch.outcome, Held)
        if held:
            self._bench.recalled = True
        for delivery in batch.items:
            if held:
                self._paused(handler, delivery, batch)
            elif batch.outcome is not None and delivery.outcome is None:
                delivery.outcome, delivery.finished_s = batch.outcome, batch.finished_s
                self._inbox.answered.append(delivery)
        if batch.over:
            return
        batch.over = True
        for run in batch.runs:
            if held and run:
                self._inbox.returned.appendleft((handler, run))
            elif run and not self._bench.recalled:
                self._bench.submit(self._executors[-1], [run])
            else:
                self._inbox.left.append((handler, run))

    def _paused(self, handler: str, delivery: Delivery, batch: Batch) -> None:
        """What asked for a pause is the first again, unless it is over."""
        delivery.reopen()
        if delivery.closed:
            return
        if batch.runs:
            batch.runs[0].appendleft(delivery)
        else:
            self._inbox.returned.appendleft((handler, delivery))


class BatchBench(Bench):
    """Batches of one, ended by an owner.

    Attributes:
        recalled: everything came back, and nothing was submitted since: lanes do not go on.
    """

    single = False
    batches = True
    _executors: list[Executor]

    def __init__(self) -> None:
        super().__init__()
        self.recalled = False
        self.inbox.batches = _Owner(self, self._executors)

    def submit(self, executor: Executor, items: Sequence[Item]) -> None:
        self.recalled = False
        executor.submit([form(item, deque()) for item in items])

    def take_back(self, executor: Executor) -> None:
        self.recalled = True
        executor.take_back()

    def deliveries(self, count: int, *, manual: bool = False) -> list[Delivery]:
        found = super().deliveries(count, manual=manual)
        handler = found[0].assignment.handler
        handler.rules = replace(handler.rules, batch=1)
        return found
