"""Forming: what a slot of a batch handler takes for one call.

As much as is ready, up to the handler's `batch`: of an unordered handler whatever comes first, by
partition records of one lane, by key those of one lane after the other. What is handled alone is
taken alone.

Whoever takes a lane's run is the only one to take from it, so what it looks at is what it takes.
What is closed there is on its way to the dead letters, and nothing behind it may start before.
Of the ready queue that is not so: an item that does not fit goes back, ahead of the others.
"""

from __future__ import annotations

from typing import cast

from ackfloor.core.batch import Batch
from ackfloor.core.delivery import Delivery
from ackfloor.core.lanes import Run
from ackfloor.runtime.marks import Marks
from ackfloor.runtime.ready import Item, ReadyQueue


def form(first: Item, queue: ReadyQueue) -> Batch:
    """The batch that begins with an item that was just taken from a queue."""
    batch = Batch()
    if isinstance(first, Run):
        _take_lanes(batch, first, queue)
    else:
        _take_loose(batch.items, first, queue)
    return _formed(batch)


def form_alone(item: Item) -> Batch:
    """A batch of one: of a run its first record."""
    batch = Batch()
    if isinstance(item, Run):
        batch.runs.append(item)
        if item and not item[0].closed:
            batch.items.append(item.popleft())
    else:
        batch.items.append(item)
    return _formed(batch)


def _formed(batch: Batch) -> Batch:
    for delivery in batch.items:
        delivery.batch = batch
    return batch


def _take_loose(items: list[Delivery], first: Delivery, queue: ReadyQueue) -> None:
    """Fill a batch with records that belong to no lane."""
    items.append(first)
    ready = queue.ready
    size = 1 if first.alone else first.assignment.handler.rules.batch or 1
    while len(items) < size:
        try:
            item = cast("Delivery", ready.popleft())
        except IndexError:
            return
        if item.alone:
            queue.put([item], ahead=True)
            return
        items.append(item)


def _take_lanes(batch: Batch, run: Run, queue: ReadyQueue) -> None:
    """Fill a batch from lanes, beginning with one that was just taken from the queue."""
    items, ready = batch.items, queue.ready
    while True:
        batch.runs.append(run)
        if run:
            rules = run[0].assignment.handler.rules
            size = 1 if (items or run)[0].alone else rules.batch or 1
            while run and len(items) < size and not run[0].closed and not (items and run[0].alone):
                items.append(run.popleft())
            if items and (len(items) >= size or rules.ordering != "key"):
                return
        try:
            run = cast("Run", ready.popleft())
        except IndexError:
            return
        if items and run and run[0].alone:
            queue.put([run], ahead=True)
            return


class Places:
    """Where the marks of batches go: for each slot as many words as its largest batch has records.

    Args:
        marks: the worker's.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        #: The place of a slot -> its places, that one included.
        self._of: dict[int, list[int]] = {}

    def note(self, slot: int, batch: Batch) -> None:
        """A slot is about to call its handler with a batch."""
        places = self._of.setdefault(slot, [slot])
        while len(places) < len(batch.items):
            places.append(self._marks.take_place())
        words = self._marks.words
        for place, delivery in zip(places, batch.items, strict=False):
            words[place] = delivery.assignment.mark | delivery.record_offset

    def clear(self, slot: int, batch: Batch) -> None:
        """The call has ended."""
        words = self._marks.words
        for place, _ in zip(self._of[slot], batch.items, strict=False):
            words[place] = 0

    def give_back(self, slot: int) -> None:
        """A slot is gone; its own place is for others to give back."""
        for place in self._of.pop(slot, ())[1:]:
            self._marks.give_back(place)
