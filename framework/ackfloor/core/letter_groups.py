"""Dead letters looked through: which ones are meant, and what they have in common.

Letters with the same handler and the same cause (fingerprint, else error type, else reason) are
one group, however many there are: what is kept is a count, the first and the last time, and the
latest place. Memory is bounded by `MOST_GROUPS`; what goes beyond is counted in one group of its
own, so that no letter is left out of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ackfloor.core.redrive import DeadLetter

MOST_GROUPS: Final = 5_000
REST: Final = "(more causes)"


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant; None means any.

    Attributes:
        handler: the handler's name.
        error: the error's class, whole or without its module, or its fingerprint.
        reason: why it was dead-lettered, such as "exhausted".
        key: the record's key.
        since_ms, until_ms: when it failed, from and before, in wall-clock ms.
    """

    handler: str | None = None
    error: str | None = None
    reason: str | None = None
    key: bytes | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether this one is meant."""
        told = letter.envelope
        if self.handler is not None and told.handler != self.handler:
            return False
        if self.reason is not None and told.reason != self.reason:
            return False
        if self.key is not None and letter.key != self.key:
            return False
        at_ms = failed_at_ms(letter)
        if self.since_ms is not None and at_ms < self.since_ms:
            return False
        if self.until_ms is not None and at_ms >= self.until_ms:
            return False
        if self.error is None:
            return True
        name = told.error_type or ""
        return self.error in {name, name.rpartition(".")[2], told.error_fingerprint}


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
        told, at_ms = letter.envelope, failed_at_ms(letter)
        cause = told.error_fingerprint or told.error_type or told.reason or "not said"
        name = (letter.topic, told.handler or "", cause)
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


def failed_at_ms(letter: DeadLetter) -> int:
    """When it failed; where its headers don't say, when it was written."""
    told = letter.envelope.failed_at_ms
    return letter.timestamp_ms if told is None else told
