"""Dead letters by handler and cause: how many, and since when.

Letters with the same handler and the same cause (fingerprint, else error type, else reason) are
one group, however many there are: what is kept is a count, the first and the last time, and the
latest place. Memory is bounded by `MOST_GROUPS`; what goes beyond is counted in one group of its
own, so that no letter is left out of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ackfloor.core.letter_filter import cause_of, failed_at_ms
from ackfloor.core.redrive import DeadLetter

MOST_GROUPS: Final = 5_000
REST: Final = "(more causes)"


@dataclass(slots=True)
class LetterGroup:
    """Dead letters of one topic, handler and cause.

    Attributes:
        first_ms, last_ms: when the first and the last of them failed, in wall-clock ms.
        partition, offset, message: of the one that failed last.
    """

    topic: str
    handler: str
    cause: str
    error_type: str
    count: int
    first_ms: int
    last_ms: int
    partition: int
    offset: int
    message: str


class LetterGroups:
    """Groups that grow letter by letter."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], LetterGroup] = {}

    def add(self, letter: DeadLetter) -> None:
        """One more."""
        told = letter.envelope
        at_ms = failed_at_ms(letter, told)
        name = (letter.topic, told.handler or "", cause_of(told))
        if name not in self._groups and len(self._groups) >= MOST_GROUPS:
            name = (letter.topic, "", REST)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = LetterGroup(
                *name, "", 0, at_ms, at_ms, letter.partition, letter.offset, ""
            )
        group.count += 1
        group.first_ms = min(group.first_ms, at_ms)
        if at_ms >= group.last_ms:
            group.last_ms = at_ms
            group.partition, group.offset = letter.partition, letter.offset
            group.error_type = "" if name[2] == REST else told.error_type or told.reason or ""
            group.message = told.error_message or ""

    def largest_first(self) -> list[LetterGroup]:
        """All of them."""
        return sorted(self._groups.values(), key=lambda g: (-g.count, g.topic, g.handler, g.cause))
