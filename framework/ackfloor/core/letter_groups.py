"""Dead letters by handler and cause: how many, and since when.

Letters with the same handler and the same cause (fingerprint, else error type, else reason) are
one group, however many there are: what is kept is a count, the first and the last time, and the
latest place. Memory is bounded by `MOST_GROUPS`; what goes beyond is counted in one group of its
own, so that no letter is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackfloor.core.envelope import (
    ERROR_FINGERPRINT,
    ERROR_MESSAGE,
    ERROR_TYPE,
    FAILED_AT,
    HANDLER,
    ORIGIN_TOPIC,
    REASON,
    read_number,
    read_text,
)
from ackfloor.core.foreign_letters import CAUSES
from ackfloor.core.letter_filter import cause_of
from ackfloor.core.redrive import DeadLetter

MOST_GROUPS: Final = 5_000
REST: Final = "(more causes)"

#: The headers that say which group a letter is in.
_OF_GROUP: Final = (HANDLER, ERROR_FINGERPRINT, ERROR_TYPE, REASON, ORIGIN_TOPIC, *CAUSES)


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
        #: What a few headers say, byte for byte -> the group, and its error type. A header is read
        #: where these bytes are new: a million dead letters have few causes.
        self._seen: dict[tuple[str | bytes | None, ...], tuple[LetterGroup, str]] = {}

    def add(self, letter: DeadLetter) -> None:
        """One more."""
        raw = dict(letter.headers or ())
        at_ms = read_number(raw.get(FAILED_AT))
        if at_ms is None:
            at_ms = letter.timestamp_ms
        seen = (letter.topic, *map(raw.get, _OF_GROUP))
        found = self._seen.get(seen)
        if found is None:
            found = self._group_of(letter, at_ms)
            if len(self._seen) < MOST_GROUPS:
                self._seen[seen] = found
        group, error_type = found
        group.count += 1
        group.first_ms = min(group.first_ms, at_ms)
        if at_ms >= group.last_ms:
            group.last_ms = at_ms
            group.partition, group.offset = letter.partition, letter.offset
            group.error_type = error_type
            group.message = _message(raw, letter)

    def _group_of(self, letter: DeadLetter, at_ms: int) -> tuple[LetterGroup, str]:
        """The group of a letter, made where it is new, and what is its error type there."""
        told = letter.envelope
        name = (letter.topic, told.handler or "", cause_of(told))
        if name not in self._groups and len(self._groups) >= MOST_GROUPS:
            name = (letter.topic, "", REST)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = LetterGroup(
                *name, "", 0, at_ms, at_ms, letter.partition, letter.offset, ""
            )
        return group, "" if name[2] == REST else told.error_type or told.reason or ""

    def largest_first(self) -> list[LetterGroup]:
        """All of them."""
        return sorted(self._groups.values(), key=lambda g: (-g.count, g.topic, g.handler, g.cause))


def _message(raw: Mapping[str, bytes | None], letter: DeadLetter) -> str:
    """What the error said, as `letter.envelope` has it, at less cost for our own."""
    if read_text(raw.get(ORIGIN_TOPIC)) is not None:
        return read_text(raw.get(ERROR_MESSAGE)) or ""
    return letter.envelope.error_message or ""
