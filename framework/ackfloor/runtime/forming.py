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
from ackfloor.core.lanes import Run
from ackfloor.ports import Items
from ackfloor.runtime.marks import Marks
from ackfloor.runtime.ready import Item, ReadyQueue


def form(first: Item, queue: ReadyQueue) -> Batch:
    """The batch that begins with an item that was just taken from a queue."""
    batch = Batch()
    _add(batch, first)
    ready = queue.ready
    while _has_room(batch):
        try:
            item = ready.popleft()
        except IndexError:
            break
        if not _add(batch, item):
            queue.put(cast("Items", [item]), ahead=True)
            break
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


def _has_room(batch: Batch) -> bool:
    """Whether another item may be looked at."""
    if not batch.items or not _fits_more(batch):
        return not batch.items
    return not batch.runs or batch.items[0].assignment.handler.rules.ordering == "key"


def _fits_more(batch: Batch) -> bool:
    """Whether another record fits; always, where the lanes so far were empty."""
    if not batch.items:
        return True
    first = batch.items[0]
    return len(batch.items) < (first.assignment.handler.rules.batch or 1) and not first.alone


def _add(batch: Batch, item: Item) -> bool:
    """Take what fits of an item; False where it must not be beside what was taken."""
    items = batch.items
    if not isinstance(item, Run):
        if items and item.alone:
            return False
        items.append(item)
        return True
    if items and item and item[0].alone:
        return False
    batch.runs.append(item)
    while item and not item[0].closed and _fits_more(batch) and not (items and item[0].alone):
        items.append(item.popleft())
    return True


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
