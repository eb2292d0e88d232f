"""DispositionNotes: what was done with the dead letters of a topic, by whom, when, by which job.

A job may have written a million notes, which differ in little but their time. So what they share
is kept once, and each offset has a time and a number in pages of neighbours: 12 bytes, where an
object for each would take 200.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final

from ackfloor.dead_letters.rules.dispositions import (
    DispositionNote,
    place_of_disposition,
    read_disposition,
)

_PAGE: Final = 1_024


class DispositionNotes:
    """Fed with the records of the topic's dispositions topic, in order.

    Args:
        topic_id: of the dead-letter topic as it is now; "" where it is not known.
    """

    def __init__(self, topic_id: str) -> None:
        self._topic_id = topic_id
        #: Notes without their times; the number of each is its place here, from 1.
        self._shared: list[DispositionNote] = []
        self._numbers: dict[DispositionNote, int] = {}
        #: Partition and page -> of each offset its time in ms, and its number; 0 for none.
        self._pages: dict[tuple[int, int], tuple[array[int], array[int]]] = {}

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        place = place_of_disposition(key)
        if place is None:
            return
        said = read_disposition(value)
        if said is not None and self._topic_id and said.topic_id not in {"", self._topic_id}:
            return  # of the topic that had this name before
        partition, (page, at) = place[0], divmod(place[1], _PAGE)
        times, numbers = self._pages.setdefault(
            (partition, page), (array("q", bytes(8 * _PAGE)), array("i", bytes(4 * _PAGE)))
        )
        times[at] = 0 if said is None else said.at_ms
        numbers[at] = 0 if said is None else self._number_of(replace(said, at_ms=0))

    def of(self, partition: int, offset: int) -> DispositionNote | None:
        """The last note of a dead letter; None where it has none that this version can read."""
        number, at = divmod(offset, _PAGE)
        page = self._pages.get((partition, number))
        if page is None or not page[1][at]:
            return None
        return replace(self._shared[page[1][at] - 1], at_ms=page[0][at])

    def _number_of(self, shared: DispositionNote) -> int:
        number = self._numbers.setdefault(shared, len(self._shared) + 1)
        if number > len(self._shared):
            self._shared.append(shared)
        return number
