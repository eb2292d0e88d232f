"""DispositionNotes: what was done with some dead letters, by whom, when and by which job."""

from __future__ import annotations

from collections.abc import Iterable

from ackfloor.dead_letters.rules.dispositions import (
    DispositionNote,
    disposition_key,
    read_disposition,
)


class DispositionNotes:
    """Of dead letters of one topic; fed with the records of its dispositions topic, in order.

    Args:
        topic_id: of the dead-letter topic as it is now; "" where it is not known.
        places: partition and offset of each dead letter.

    Attributes:
        found: partition and offset -> the last note, of those that have one that can be read.
    """

    def __init__(self, topic_id: str, places: Iterable[tuple[int, int]]) -> None:
        self._topic_id = topic_id
        self._places = {disposition_key(*place): place for place in places}
        self.found: dict[tuple[int, int], DispositionNote] = {}

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record of the dispositions topic."""
        place = self._places.get(key or b"")
        if place is None:
            return
        said = read_disposition(value)
        if said is not None and self._topic_id and said.topic_id not in {"", self._topic_id}:
            return  # of the topic that had this name before
        self.found.pop(place, None)
        if said is not None:
            self.found[place] = said
