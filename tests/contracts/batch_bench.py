"""BatchBench: executors of batch handlers under the contract of all executors, with batches of one.

What such an executor posts is ended by the owner thread; here that is done at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ackfloor.core.queues.batch_assembly import form, unform
from ackfloor.core.queues.handler_queue import Item, Unit
from ackfloor.core.queues.lanes import Lane, Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED, Failed, Paused
from ackfloor.core.records.tracked_delivery import LaneKey, TrackedDelivery
from ackfloor.ports import Executor
from tests.contracts.executor_contract import (
    WATCH_S,
    Bench,
    Ends,
    Given,
    eventually,
    offsets_of,
    work_of,
)


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
        self._bench.calls.append(batch)
        held = isinstance(batch.outcome, Paused)
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

    def _paused(self, handler: str, delivery: TrackedDelivery, batch: Batch) -> None:
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
        calls: batches whose end was posted.
    """

    single = False
    batches = True
    _executors: list[Executor]

    def __init__(self) -> None:
        super().__init__()
        self.recalled = False
        self.calls: list[Batch] = []
        self.seen: Callable[[], None] = _nothing
        self._works: dict[LaneKey, Work] = {}
        self.inbox.finished = _Owner(self, self._executors)

    def on_ended(self, seen: Callable[[], None]) -> None:
        self.seen = seen
        self.inbox.finished = _Owner(self, self._executors)

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

    def submit(self, executor: Executor, items: Sequence[Given], *, last: bool = False) -> None:
        self.recalled = False
        executor.submit([form(deque([self._queued(item)])) for item in items], last=last)

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

    def deliveries(self, count: int, *, manual: bool = False) -> list[TrackedDelivery]:
        found = super().deliveries(count, manual=manual)
        handler = found[0].assignment.handler
        handler.rules = replace(handler.rules, batch=1)
        return found


def _nothing() -> None:
    """Nobody looks at the ends."""


class CallsContract:
    """Subclass it together with `ExecutorContract` where the bench is a `BatchBench`."""

    def test_the_end_of_each_batch_is_posted_once(self, bench: BatchBench) -> None:
        """With its outcome; and of one of which nothing may start, without."""
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(4)
        deliveries[1].closed = True
        bench.raises = {2: [ValueError("no")]}
        bench.submit(executor, deliveries)
        eventually(lambda: len(bench.calls) == 4)
        time.sleep(WATCH_S)
        outcomes = [batch.outcome for batch in bench.calls]
        assert outcomes == [deliveries[0].outcome, None, deliveries[2].outcome, ACKED]
        assert [len(batch.items) for batch in bench.calls] == [1, 0, 1, 1]
        assert isinstance(outcomes[2], Failed)
        assert (bench.started, bench.returned) == ([0, 2, 3], [])

    def test_a_batch_that_was_given_back_is_not_ended(self, bench: BatchBench) -> None:
        """Its records are in their lane again, in order, and nobody has called anything."""
        bench.shut(0)
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(4)
        bench.submit(executor, deliveries[:1])
        eventually(lambda: bench.started == [0])
        bench.submit(executor, [work := work_of("ada", deliveries[1:])])
        bench.take_back(executor)
        eventually(lambda: bench.returned == [1, 2, 3])
        bench.open()
        eventually(lambda: bench.answered == [0])
        time.sleep(WATCH_S)
        assert (len(bench.calls), bench.started) == (1, [0])
        assert bench.returned_items() == [work]
        assert list(work) == deliveries[1:]

    def test_the_batch_of_a_slot_that_is_given_up_is_ended(self, bench: BatchBench) -> None:
        """Its lane goes on; what its handler still does changes nothing."""
        bench.shut(0)
        executor = bench.executor(concurrency=1, lanes=True)
        deliveries = bench.deliveries(3)
        bench.submit(executor, [work_of("ada", deliveries)])
        eventually(lambda: bench.started == [0])
        deliveries[0].closed = True
        executor.cancel(deliveries[0])
        eventually(lambda: bench.answered == [1, 2])
        bench.open()
        eventually(lambda: executor.abandoned() == 0)
        time.sleep(WATCH_S)
        assert bench.started == [0, 1, 2]
        ended = [batch.items[0].offset for batch in bench.calls]
        # A thread's handler returns late: that is the end of its call once more, and no news.
        assert [n for n in ended if n != 0] == [n for n in bench.answered if n != 0] == [1, 2]
        assert ended[0] == 0
