"""Places: where what runs of a batch handler is noted for whoever outlives this process."""

from __future__ import annotations

from ackfloor.core.records.batch import Batch
from ackfloor.runtime.supervision.in_flight_memory import InFlightMemory


class Places:
    """Where the marks of batches go: for each slot as many words as its largest batch has records.

    Args:
        in_flight: the worker's.
    """

    def __init__(self, in_flight: InFlightMemory) -> None:
        self._in_flight = in_flight
        #: The place of a slot -> its places, that one included.
        self._of: dict[int, list[int]] = {}

    def note(self, slot: int, batch: Batch) -> None:
        """A slot is about to call its handler with a batch."""
        places = self._of.setdefault(slot, [slot])
        while len(places) < len(batch.items):
            places.append(self._in_flight.take_place())
        cells = self._in_flight.cells
        for place, delivery in zip(places, batch.items, strict=False):
            cells[place] = delivery.assignment.mark | delivery.record_offset

    def clear(self, slot: int, batch: Batch) -> None:
        """The call has ended."""
        cells = self._in_flight.cells
        for place, _ in zip(self._of[slot], batch.items, strict=False):
            cells[place] = 0

    def give_back(self, slot: int) -> None:
        """A slot is gone."""
        for place in self._of.pop(slot, (slot,)):
            self._in_flight.give_back(place)
