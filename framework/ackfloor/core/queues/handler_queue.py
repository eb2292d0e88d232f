"""HandlerQueue: one handler's records that may start, in order, and how many its executor gets.

Theory. Everything that is due waits here until the handler's executor has room for it. The
executor holds a window: what its slots start in one turn of the owner thread, and no more. So what
is put ahead here is ahead of nearly everything, and a pause or a breaker takes effect within a
turn. The window follows what is measured: it is twice what was started between two looks
of the owner thread, at most, in the last `MEASURED_S`; at least one item for each slot; and twice
as much as before when the slots have emptied it while more was waiting.

Where keys are noisy or hang, what is due of them waits apart (`fair_order`), and the executor gets
it separately: its slots take it only when they have nothing else.

An item is a delivery, or a free lane of an ordered handler. What the executor is given at once is a
unit: a delivery, a lane's records, or a batch, formed here. An incomplete batch waits as long as
all slots are busy: more may join it.

Invariants (tests/framework/core/queues/test_handler_queue.py):

Q1  what is put in comes out once, what was put ahead first.
Q2  at most `window` items are with the executor and not started.
Q3  an incomplete batch is given only where fewer calls run than slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from ackfloor.core.queues.batch_assembly import (
    form,
    form_single,
    full_first,
    is_full,
    may_fill,
    unform,
)
from ackfloor.core.queues.fair_order import FairOrder
from ackfloor.core.queues.lanes import Lane, Lanes, Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery

if TYPE_CHECKING:
    from ackfloor.core.state.assignment import HandlerRules

Item = TrackedDelivery | Lane
#: What an executor is given at once, and a slot takes: one delivery, some of a lane, or a batch.
Unit = TrackedDelivery | Work | Batch

#: Seconds for which the most that was started in one turn counts. A turn takes up to 20 ms while
#: handlers run, and longer where they leave the owner thread little of its core.
MEASURED_S = 0.1


class HandlerQueue:
    """The items of one handler that may start.

    Args:
        lanes: the handler's.
        ordered: whether it has any.
        batches: whether it takes batches.
        fair: which of its keys wait for others, and what waits of them.

    Attributes:
        items: those that no executor has, the next one first.
        alone: those that may start although nothing else of the worker may.
        window: how many items the executor may have that it has not started.
        lacked: how many tokens the next batch takes, where there were too few (see `HandlerRate`).
        calls: batches that were given and have not ended.
    """

    __slots__ = (
        "_batches",
        "_given",
        "_lanes",
        "_most",
        "_ordered",
        "_since_s",
        "calls",
        "exclusive",
        "fair",
        "items",
        "lacked",
        "window",
    )

    def __init__(
        self, lanes: Lanes, *, ordered: bool, batches: bool, fair: FairOrder | None = None
    ) -> None:
        self._lanes = lanes
        self.fair = fair
        self._ordered = ordered
        self._batches = batches
        self.items: deque[Item] = deque()
        self.exclusive: deque[Item] = deque()
        self.window = 1
        self.lacked = 0
        self.calls = 0
        #: What the executor had not started after the last look.
        self._given = 0
        #: The most that it started between two looks, since `_since_s`.
        self._most = 0
        self._since_s = 0.0

    def __len__(self) -> int:
        apart = 0 if self.fair is None else len(self.fair)
        return self.in_order() + apart

    def in_order(self) -> int:
        """How many items wait for a slot, without those of keys that wait for others."""
        return len(self.items) + len(self.exclusive)

    # In.

    def put(self, items: Iterable[Item], *, ahead: bool = False) -> None:
        """Add items at the end, or ahead of all others in their own order."""
        if ahead:
            self.items.extendleft(reversed(list(items)))
        else:
            self.items.extend(items)

    def returned(self, units: Sequence[Unit]) -> None:
        """The executor gave back what it has not started: that is the first again."""
        self._given -= len(units)
        if self.fair is not None and self.fair.waiting:
            self.fair.returned(_first_of(unit) for unit in units if unit)
        for unit in reversed(units):
            if isinstance(unit, Batch):
                self.call_ended(unit)
                unform(unit, self.items)
            elif isinstance(unit, TrackedDelivery) and unit.lane is None:
                self._put_back(unit)
            elif (item := self._lanes.back(unit)) is not None:
                self._put_back(item)

    def _put_back(self, item: Item) -> None:
        if self.fair is None or not self.fair.put_back(item):
            self.items.appendleft(item)

    def make_exclusive(self, delivery: TrackedDelivery) -> None:
        """Let a record that is the first of an item here start while nothing else may."""
        for items in (self.items, *self._apart()):
            for n, item in enumerate(items):
                first = next(iter(item), None) if isinstance(item, Lane) else item
                if first is delivery:
                    del items[n]
                    self.exclusive.append(item)
                    return

    def withdraw(self, delivery: TrackedDelivery) -> bool:
        """Take out a record that waits here and has nothing behind it in its lane.

        Returns whether it was here: if not, the executor has it.
        """
        for items in (self.exclusive, self.items, *self._apart()):
            for n, item in enumerate(items):
                first = next(iter(item), None) if isinstance(item, Lane) else item
                if first is delivery and self._lanes.withdraw(delivery):
                    del items[n]
                    return True
        return False

    def forget_closed(self) -> None:
        """Partitions were dropped: nothing of them starts any more."""
        for items in (self.items, self.exclusive, *self._apart()):
            kept = [item for item in items if not _closed(item)]
            items.clear()
            items.extend(kept)

    def _apart(self) -> Iterable[deque[Item]]:
        """What waits of each key that waits for others."""
        return () if self.fair is None else self.fair.lines()

    def gather(self) -> None:
        """Put what waits apart first: single records are given, whatever their key."""
        if self.fair is not None:
            self.items.extendleft(reversed(self.fair.give_up()))

    # Out.

    def room(self, queued: int, concurrency: int, now_s: float) -> int:
        """How many more items the executor may be given.

        Args:
            queued: what it has and has not started.
            concurrency: how many slots it has.
            now_s: monotonic seconds.
        """
        started = self._given - queued
        self._most = max(self._most, started)
        if queued == 0 and started > 0 and (self.items or (self.fair and len(self.fair))):
            self.window = max(self.window, 2 * started)
        elif now_s - self._since_s >= MEASURED_S:
            self.window = 2 * self._most
            self._since_s, self._most = now_s, 0
        self.window = max(self.window, concurrency)
        self._given = queued
        return self.window - queued

    def pass_over(self, queued: int) -> None:
        """Leave what was started since the last look out of the measurement: it was single records,
        or nothing was to start. `queued` is what the executor has not started."""
        self._given = queued

    def take(self, count: int, *, of_a_lane: int | None = None) -> Sequence[Unit]:
        """Take up to so many items for the executor.

        Args:
            count: how many.
            of_a_lane: how many records of a lane at most; None for all that wait in it.
        """
        items, fair = self.items, self.fair
        if fair is not None and fair.waiting:
            taken = fair.sift(items, count)
        elif count >= len(items):
            taken = list(items)
            items.clear()
        else:
            taken = [items.popleft() for _ in range(count)]
        return self._handed_out(taken, of_a_lane)

    def unstarted_last(self) -> int:
        """How many items the executor has not started that it was given for slots that have nothing
        else: they take no other's room."""
        return 0 if self.fair is None or not self.fair.waiting else self.fair.unstarted()

    def take_last(
        self, count: int, hanging_room: int, concurrency: int, *, of_a_lane: int | None = None
    ) -> Sequence[Unit]:
        """Take up to so many items of noisy and hanging keys, for slots that are free otherwise.

        Args:
            count: how many.
            hanging_room: how many slots hanging keys may have; see `FairOrder.take`.
            concurrency: how many slots the handler has.
            of_a_lane: see `take`.
        """
        if self.fair is None or count <= 0:
            return ()
        return self._handed_out(self.fair.take(count, hanging_room, concurrency), of_a_lane)

    def took_tokens(self, units: Sequence[Unit]) -> None:
        """These were given, and others wait for tokens of the handler's rate."""
        if self.fair is not None:
            self.fair.took(_first_of(unit) for unit in units if unit)

    def _handed_out(self, taken: list[Item], of_a_lane: int | None) -> Sequence[Unit]:
        self._given += len(taken)
        if not self._ordered:
            return cast("list[TrackedDelivery]", taken)
        hand_out = self._lanes.hand_out
        return [hand_out(item, of_a_lane) if isinstance(item, Lane) else item for item in taken]

    def take_batches(
        self, count: int, rules: HandlerRules, tokens: int | None = None
    ) -> list[Batch]:
        """Form up to so many batches for the executor.

        Args:
            count: how many.
            rules: the handler's.
            tokens: how many records all of them may have; None for no limit.
        """
        batches: list[Batch] = []
        items, size, many = self.items, rules.batch or 1, rules.ordering != "partition"
        while items and len(batches) < count:
            busy = self.calls + len(batches) >= rules.concurrency
            if busy and not (may_fill(items, size) if many else full_first(items, size)):
                break
            batch = form(items)
            if busy and not is_full(batch):
                unform(batch, items)
                break
            if tokens is not None:
                if len(batch.items) > tokens:
                    self.lacked = len(batch.items)
                    unform(batch, items)
                    break
                tokens -= len(batch.items)
            batches.append(batch)
        self._give(batches)
        return batches

    def take_singly(self, count: int) -> list[Unit]:
        """Take up to so many single records for the executor, each by itself."""
        return self._singles(self.items, count)

    def take_exclusive(self, most: int | None = None) -> list[Unit]:
        """Take the crash suspect that runs while nothing else of the worker may start.

        `most` is how many there may be at most, None for no limit.
        """
        count = len(self.exclusive)
        return self._singles(self.exclusive, count if most is None else min(most, count))

    def take_these(self, wanted: Collection[int], most: int | None) -> list[Unit]:
        """Take one record of each of these items, by itself.

        Args:
            wanted: the items' `id`s; those that are not here are passed over.
            most: how many there may be at most; None for no limit.
        """
        most = len(wanted) if most is None else most
        found: deque[Item] = deque()
        for items in (self.items, *self._apart()):
            here = list(items)
            items.clear()
            for item in here:
                (found if id(item) in wanted and len(found) < most else items).append(item)
        return self._singles(found, most)

    def _singles(self, items: deque[Item], count: int) -> list[Unit]:
        units: list[Unit] = []
        while items and len(units) < count:
            item = items.popleft()
            if isinstance(item, Lane):
                if not self._lanes.begins(item):
                    continue
            elif item.closed or item.assignment.stopping:
                continue
            if self._batches:
                units.append(form_single(item))
            else:
                units.append(self._lanes.hand_out(item, 1) if isinstance(item, Lane) else item)
        self._give(units)
        return units

    def _give(self, units: Sequence[Unit]) -> None:
        self._given += len(units)
        for unit in units:
            if isinstance(unit, Batch):
                unit.given = True
                self.calls += 1

    def call_ended(self, batch: Batch) -> None:
        """A call has returned, was abandoned or did not begin; a second report changes nothing."""
        self.calls -= batch.given
        batch.given = False


def _first_of(unit: Unit) -> TrackedDelivery:
    """The first delivery of what an executor gives back."""
    if isinstance(unit, TrackedDelivery):
        return unit
    return (unit.items if isinstance(unit, Batch) else unit)[0]


def _closed(item: Item) -> bool:
    """Whether an item is of a partition that has left; a lane is of one partition."""
    if isinstance(item, Lane):
        return bool(item) and item[0].assignment.closed
    return item.assignment.closed
