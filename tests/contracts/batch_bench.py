"""BatchBench: executors of batch handlers under the contract of all executors, with batches of one.

What such an executor posts is ended by the owner thread; here that is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery, LaneKey
from ackfloor.core.forming import form, unform
from ackfloor.core.lanes import Lane, Work
from ackfloor.core.outcomes import Held
from ackfloor.core.queue import Item, Unit
from ackfloor.ports import Executor
from tests.contracts.executor_contract import Bench, Ends, Given, offsets_of


class _Owner(Ends):
    """What the owner thread does with a batch of one, at once; ends of works stay here."""

    def __init__(self, bench: BatchBench, executors: list[Executor]) -> None:
        super().__init__(bench.seen)
        self._bench = bench
        self._inbox = bench.inbox
        self._executors = executors

    def append(self, ended: tuple[str, Work | Batch]) -> None:
        """A call has ended, or was given up."""
        handler, batch = ended
        assert isinstance(batch, Batch), "nothing else is given"
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
        failed = any(d.keeps_lane() for d in batch.items)
        for lane in batch.lanes:
            lane.out = None
            if failed:
                # It waits for what failed.
                continue
            if held and lane:
                self._inbox.returned.appendleft((handler, self._bench.work_again(lane)))
            elif lane and not self._bench.recalled:
                self._bench.submit(self._executors[-1], [self._bench.work_again(lane)])
            else:
                super().append((handler, self._bench.work_again(lane)))

    def _paused(self, handler: str, delivery: Delivery, batch: Batch) -> None:
        """What asked for a pause is the first again, unless it is over."""
        delivery.reopen()
        if delivery.closed:
            return
        if batch.lanes:
            batch.lanes[0].appendleft(delivery)
        else:
            self._inbox.returned.appendleft((handler, delivery))


class BatchBench(Bench):
    """Batches of one, ended by an owner. What is in a work waits in its lane meanwhile.

    Attributes:
        recalled: everything came back, and nothing was submitted since: lanes do not go on.
    """

    single = False
    batches = True
    _executors: list[Executor]

    def __init__(self) -> None:
        super().__init__()
        self.recalled = False
        self.seen: Callable[[], None] = _nothing
        self._works: dict[LaneKey, Work] = {}
        self.inbox.ended = _Owner(self, self._executors)

    def on_ended(self, seen: Callable[[], None]) -> None:
        self.seen = seen
        self.inbox.ended = _Owner(self, self._executors)

    def work_again(self, lane: Lane) -> Work:
        """The work that a lane was given as, with what waits in it."""
        work = self._works[lane.key]
        work.extend(lane)
        lane.clear()
        return work

    def behind(self, work: Work) -> list[int]:
        return offsets_of([work]) + offsets_of(list(work.lane))

    def put_first(self, units: deque[Given], unit: Unit, *, whole: bool) -> None:
        if not isinstance(unit, Batch):
            units.appendleft(unit)
        elif whole:
            items: deque[Item] = deque()
            unform(unit, items)
            again = [self.work_again(item) if isinstance(item, Lane) else item for item in items]
            units.extendleft(reversed(again))
        else:
            rest = [delivery for lane in unit.lanes for delivery in list(lane)]
            units.extendleft(reversed([*unit.items, *rest]))

    def submit(self, executor: Executor, items: Sequence[Given]) -> None:
        self.recalled = False
        executor.submit([form(deque([self._queued(item)])) for item in items])

    def _queued(self, item: Given) -> Item:
        if not isinstance(item, Work):
            return item
        lane = item.lane
        self._works[lane.key] = item
        lane.extend(item)
        item.clear()
        return lane

    def take_back(self, executor: Executor) -> None:
        self.recalled = True
        executor.take_back()

    def deliveries(self, count: int, *, manual: bool = False) -> list[Delivery]:
        found = super().deliveries(count, manual=manual)
        handler = found[0].assignment.handler
        handler.rules = replace(handler.rules, batch=1)
        return found


def _nothing() -> None:
    """Nobody looks at the ends."""
