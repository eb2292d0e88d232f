"""BatchBench: executors of batch handlers under the contract of all executors, with batches of one.

What such an executor posts is ended by the owner thread; here that is done at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.outcomes import Held
from ackfloor.ports import Executor
from tests.contracts.executor_contract import Bench


class _Owner(deque[tuple[str, Batch]]):
    """What the owner thread does with a batch of one, at once."""

    def __init__(self, bench: Bench, executors: list[Executor]) -> None:
        super().__init__()
        self._inbox = bench.inbox
        self._executors = executors

    def append(self, item: tuple[str, Batch]) -> None:
        """A call has ended, or was given up."""
        handler, batch = item
        held = isinstance(batch.outcome, Held)
        for delivery in batch.items:
            if held:
                delivery.reopen()
                if batch.runs:
                    batch.runs[0].appendleft(delivery)
                else:
                    self._executors[-1].dispatch([delivery], ahead=True)
            elif batch.outcome is not None and delivery.outcome is None:
                delivery.outcome, delivery.finished_s = batch.outcome, batch.finished_s
                self._inbox.answered.append(delivery)
        if batch.over:
            return
        batch.over = True
        for run in batch.runs:
            if run:
                self._executors[-1].dispatch([run], ahead=held)
            else:
                self._inbox.left.append((handler, run))


class BatchBench(Bench):
    """Batches of one, ended by an owner."""

    single = False
    _executors: list[Executor]

    def __init__(self) -> None:
        super().__init__()
        self.inbox.batches = _Owner(self, self._executors)

    def deliveries(self, count: int, *, manual: bool = False) -> list[Delivery]:
        found = super().deliveries(count, manual=manual)
        handler = found[0].assignment.handler
        handler.rules = replace(handler.rules, batch=1)
        return found
