"""Places: where what runs of a batch handler is noted for whoever outlives this process."""

from __future__ import annotations

from ackfloor.core.records.batch import Batch
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory


class Places:
    """Where the marks of batches go: for each slot as many words as its largest batch has records.

    Args:
        marks: the worker's.
    """

    def __init__(self, marks: InFlightMemory) -> None:
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
        """A slot is gone."""
        for place in self._of.pop(slot, (slot,)):
            self._marks.give_back(place)
