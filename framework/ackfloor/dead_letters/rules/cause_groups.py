"""Dead letters by handler and cause: how many, and since when.

Dead letters with the same handler and the same cause (fingerprint, else error type, else reason)
are one group, however many there are: what is kept is a count, the first and the last time, the
latest place, and when each release first failed so. Memory is bounded by `MOST_GROUPS`; what goes
beyond is counted in one group of its own, so that the sum is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ackfloor.core.records.envelope import (
    ERROR_FINGERPRINT,
    ERROR_MESSAGE,
    ERROR_TYPE,
    FAILED_AT,
    FIRST_FAILED_AT,
    HANDLER,
    ORIGIN_TOPIC,
    REASON,
    RELEASE,
    read_number,
    read_text,
)
from ackfloor.dead_letters.rules.dead_letter_filter import cause_of
from ackfloor.dead_letters.rules.foreign_headers import CAUSES
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

MOST_GROUPS: Final = 5_000
#: So many releases of a cause are remembered.
MOST_RELEASES: Final = 100
REST: Final = "(more causes)"

#: The headers that decide a dead letter's group.
_OF_GROUP: Final = (HANDLER, ERROR_FINGERPRINT, ERROR_TYPE, REASON, ORIGIN_TOPIC, RELEASE, *CAUSES)


@dataclass(slots=True)
class CauseGroup:
    """Dead letters of one topic, handler and cause.

    Attributes:
        first_ms: when one of them failed for the first time, in its source topic if it says so;
            in wall-clock ms.
        last_ms: when the last of them failed, in wall-clock ms.
        partition, offset, message: of the one that failed last.
        releases: release -> when the first of its dead letters failed, in wall-clock ms.
        key: that all of them have, where they are grouped by it as well.
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
    releases: dict[str, int] = field(default_factory=dict)
    key: bytes | None = None

    def releases_in_order(self) -> list[str]:
        """The releases that failed so, by when each first did."""
        return sorted(self.releases, key=lambda each: (self.releases[each], each))


class CauseGroups:
    """Collects groups, one dead letter at a time.

    Args:
        by_key: dead letters of different keys are different groups.
    """

    def __init__(self, *, by_key: bool = False) -> None:
        self._by_key = by_key
        self._groups: dict[tuple[str, str, str, bytes | None], CauseGroup] = {}
        #: Raw bytes of these headers -> group, error type and release. They are decoded only where
        #: the bytes are new: a million dead letters have few causes.
        self._seen: dict[tuple[str | bytes | None, ...], tuple[CauseGroup, str, str]] = {}

    def add(self, dead_letter: DeadLetter) -> None:
        """Count one more."""
        raw = dict(dead_letter.headers or ())
        at_ms = read_number(raw.get(FAILED_AT))
        if at_ms is None:
            at_ms = dead_letter.timestamp_ms
        seen = (dead_letter.topic, self._key_of(dead_letter), *map(raw.get, _OF_GROUP))
        found = self._seen.get(seen)
        if found is None:
            found = self._group_of(dead_letter, at_ms)
            if len(self._seen) < MOST_GROUPS:
                self._seen[seen] = found
        group, error_type, release = found
        group.count += 1
        if release and (release in group.releases or len(group.releases) < MOST_RELEASES):
            group.releases[release] = min(at_ms, group.releases.get(release, at_ms))
        first_ms = read_number(raw.get(FIRST_FAILED_AT))
        group.first_ms = min(group.first_ms, at_ms if first_ms is None else first_ms)
        if at_ms >= group.last_ms:
            group.last_ms = at_ms
            group.partition, group.offset = dead_letter.partition, dead_letter.offset
            group.error_type = error_type
            group.message = _message(raw, dead_letter)

    def _key_of(self, dead_letter: DeadLetter) -> bytes | None:
        return dead_letter.key if self._by_key else None

    def _group_of(self, dead_letter: DeadLetter, at_ms: int) -> tuple[CauseGroup, str, str]:
        """A dead letter's group, made where it is new, with its error type and release."""
        envelope = dead_letter.envelope
        key = self._key_of(dead_letter)
        name = (dead_letter.topic, envelope.handler or "", cause_of(envelope), key)
        if name not in self._groups and len(self._groups) >= MOST_GROUPS:
            name = (dead_letter.topic, "", REST, None)
        group = self._groups.get(name)
        if group is None:
            place = dead_letter.partition, dead_letter.offset
            group = self._groups[name] = CauseGroup(
                *name[:3], "", 0, at_ms, at_ms, *place, "", key=name[3]
            )
        error_type = "" if name[2] == REST else envelope.error_type or envelope.reason or ""
        return group, error_type, envelope.release or ""

    def largest_first(self) -> list[CauseGroup]:
        """All of them."""
        return sorted(
            self._groups.values(),
            key=lambda g: (-g.count, g.topic, g.handler, g.cause, g.key or b""),
        )


def _message(raw: Mapping[str, bytes | None], dead_letter: DeadLetter) -> str:
    """The error's message, as `envelope` has it, at less cost for our own headers."""
    if read_text(raw.get(ORIGIN_TOPIC)) is not None:
        return read_text(raw.get(ERROR_MESSAGE)) or ""
    return dead_letter.envelope.error_message or ""
