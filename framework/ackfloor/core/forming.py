"""Forming: what one call of a batch handler takes.

As much as waits, up to the handler's `batch`: of an unordered handler whatever comes first, by
partition records of one lane, by key those of one lane after the other. What is handled alone is
taken alone.

What is closed in a lane is on its way to the dead letters, and nothing behind it may start before.
An item that does not fit goes back, ahead of the others.
"""

from __future__ import annotations

from collections import deque
from typing import cast

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run


def form(first: Delivery | Run, items: deque[Delivery | Run]) -> Batch:
    """The batch that begins with an item that was just taken from a queue.

    Args:
        first: the item.
        items: what is left of the queue.
    """
    batch = Batch()
    if isinstance(first, Run):
        _take_lanes(batch, first, items)
    else:
        _take_loose(batch, first, items)
    return _formed(batch)


def form_alone(item: Delivery | Run) -> Batch:
    """A batch of one: of a run its first record."""
    batch = Batch()
    if isinstance(item, Run):
        batch.runs.append(item)
        if item and not item[0].closed:
            batch.items.append(item.popleft())
    else:
        batch.items.append(item)
    return _formed(batch)


def is_full(batch: Batch) -> bool:
    """Whether nothing could join a batch."""
    if not batch.items:
        return True
    first = batch.items[0]
    return first.alone or len(batch.items) >= (first.assignment.handler.rules.batch or 1)


def unform(batch: Batch, items: deque[Delivery | Run]) -> None:
    """Undo a batch: what is in it is first in its queue again, and in its lanes."""
    if not batch.runs:
        items.extendleft(reversed(batch.items))
        return
    for delivery in reversed(batch.items):
        delivery.run.appendleft(delivery)
    items.extendleft(reversed(batch.runs))


def _formed(batch: Batch) -> Batch:
    for delivery in batch.items:
        delivery.batch = batch
    return batch


def _take_loose(batch: Batch, first: Delivery, items: deque[Delivery | Run]) -> None:
    """Fill a batch with records that belong to no lane."""
    taken = batch.items
    taken.append(first)
    size = 1 if first.alone else first.assignment.handler.rules.batch or 1
    while items and len(taken) < size:
        item = cast("Delivery", items.popleft())
        if item.alone:
            items.appendleft(item)
            return
        taken.append(item)


def _take_lanes(batch: Batch, run: Run, items: deque[Delivery | Run]) -> None:
    """Fill a batch from lanes, beginning with one that was just taken from the queue."""
    taken = batch.items
    while True:
        batch.runs.append(run)
        if run:
            rules = run[0].assignment.handler.rules
            size = 1 if (taken or run)[0].alone else rules.batch or 1
            while run and len(taken) < size and not run[0].closed and not (taken and run[0].alone):
                taken.append(run.popleft())
            if taken and (len(taken) >= size or rules.ordering != "key"):
                return
        if not items:
            return
        run = cast("Run", items.popleft())
        if taken and run and run[0].alone:
            items.appendleft(run)
            return
