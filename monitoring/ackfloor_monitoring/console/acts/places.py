"""Places: the records that a form has ticked."""

from __future__ import annotations

import typer

from ackfloor import SettingError
from ackfloor.dead_letters.commands.selection import place_of


def place_in(topic: str, text: str) -> tuple[int, int]:
    """Partition and offset of a record of this topic; raises SettingError for any other text."""
    try:
        found, partition, offset = place_of(text)
    except typer.BadParameter as exc:
        raise SettingError("place", text, "names no record", exc.message) from None
    if found != topic:
        raise SettingError("place", text, f"is not in {topic}", "name places of one topic")
    return partition, offset
