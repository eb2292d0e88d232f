"""Places: the records that a form has ticked."""

from __future__ import annotations

import typer

from ackfloor import SettingError
from ackfloor.dead_letters.commands.selection import place_of
from ackfloor_monitoring.console.forms import Fields


def ticked(form: Fields, records: str) -> list[str]:
    """The places that a form has ticked, each once; none where all that match are meant.

    Args:
        records: what they are called, for the message.

    Raises:
        SettingError: the form asks for neither, or for both.
    """
    found = list(dict.fromkeys(form.all("place")))
    if bool(found) is bool(form.get("all")):
        fix = f"tick {records}, or all that match"
        raise SettingError("place", found or "", "some are named, or all are meant", fix)
    return found


def place_in(topic: str, text: str) -> tuple[int, int]:
    """Partition and offset of a record of this topic; raises SettingError for any other text."""
    try:
        found, partition, offset = place_of(text)
    except typer.BadParameter as exc:
        raise SettingError("place", text, "names no record", exc.message) from None
    if found != topic:
        raise SettingError("place", text, f"is not in {topic}", "name places of one topic")
    return partition, offset
