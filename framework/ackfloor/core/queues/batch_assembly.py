"""Batch assembly: which records one call of a batch handler takes.

As much as waits, up to the handler's `batch`: of an unordered handler whatever comes first, by
partition records of one lane, by key those of one lane after the other. A redelivery or a crash
suspect has a call of its own.

A closed delivery in a lane is on its way to the dead letters: nothing behind it may start before.
An item that does not fit goes back, ahead of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import cast

from ackfloor.core.queues.lanes import Lane
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery


def form(items: deque[TrackedDelivery | Lane]) -> Batch:
    """A batch from the first item of a queue and those after it that may join."""
    batch = Batch()
    first = items.popleft()
    if isinstance(first, Lane):
        _take_lanes(batch, first, items)
    else:
        _take_loose(batch, first, items)
    return _formed(batch)


def form_single(item: TrackedDelivery | Lane) -> Batch:
    """A batch of one: of a lane its first record."""
    batch = Batch()
    if isinstance(item, Lane):
        batch.lanes.append(item)
        if item and not item[0].closed:
            batch.items.append(item.popleft())
    else:
        batch.items.append(item)
    return _formed(batch)


def may_fill(items: Iterable[TrackedDelivery | Lane], size: int) -> bool:
    """Whether a batch that takes several items may be full; False is certain."""
    found = 0
    for item in items:
        found += _reach(item, size)
        if found >= size:
            return True
    return False


def full_first(items: deque[TrackedDelivery | Lane], size: int) -> bool:
    """Where a batch takes one lane: make one that is full the first; False where none is."""
    for n, item in enumerate(items):
        if _reach(item, size) >= size:
            del items[n]
            items.appendleft(item)
            return True
    return False


def _reach(item: TrackedDelivery | Lane, size: int) -> int:
    """How many records an item may add to a batch; one that has its own call fills it."""
    first = item[0] if isinstance(item, Lane) and item else item
    if isinstance(first, TrackedDelivery) and first.unbatched:
        return size
    return len(item) if isinstance(item, Lane) else 1


def is_full(batch: Batch) -> bool:
    """Whether nothing could join a batch."""
    if not batch.items:
        return True
    first = batch.items[0]
    return first.unbatched or len(batch.items) >= (first.assignment.handler.rules.batch or 1)


def unform(batch: Batch, items: deque[TrackedDelivery | Lane]) -> None:
    """Undo a batch: what is in it is first in its queue again, and in its lanes."""
    if not batch.lanes:
        items.extendleft(reversed(batch.items))
        return
    for delivery in reversed(batch.items):
        cast("Lane", delivery.lane).appendleft(delivery)
    for lane in reversed(batch.lanes):
        if lane.out is batch:
            lane.out = None
            items.appendleft(lane)


def _formed(batch: Batch) -> Batch:
    for delivery in batch.items:
        delivery.batch = batch
    for lane in batch.lanes:
        lane.out = batch
    return batch


def _take_loose(batch: Batch, first: TrackedDelivery, items: deque[TrackedDelivery | Lane]) -> None:
    """Fill a batch with records that belong to no lane."""
    taken = batch.items
    taken.append(first)
    size = 1 if first.unbatched else first.assignment.handler.rules.batch or 1
    while items and len(taken) < size:
        item = cast("TrackedDelivery", items.popleft())
        if item.unbatched:
            items.appendleft(item)
            return
        taken.append(item)


def _take_lanes(batch: Batch, lane: Lane, items: deque[TrackedDelivery | Lane]) -> None:
    """Fill a batch from lanes, beginning with one that was just taken from the queue."""
    taken = batch.items
    while True:
        batch.lanes.append(lane)
        if lane:
            rules = lane[0].assignment.handler.rules
            size = 1 if (taken or lane)[0].unbatched else rules.batch or 1
            while lane and len(taken) < size and not lane[0].closed:
                if taken and lane[0].unbatched:
                    break
                taken.append(lane.popleft())
            if taken and (len(taken) >= size or rules.ordering != "key"):
                return
        if not items:
            return
        lane = cast("Lane", items.popleft())
        if taken and lane and lane[0].unbatched:
            items.appendleft(lane)
            return
