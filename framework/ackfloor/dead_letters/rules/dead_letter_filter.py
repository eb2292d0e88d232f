"""DeadLetterFilter: selects dead letters by handler, error, reason, key, headers and time.

All of its conditions must be met; without any, every dead letter matches. It is data, never code:
it is stored in the note of a job, so that a resumed job selects the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import Any, Final

from ackfloor.core.records.envelope import Envelope
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

#: The cause of a dead letter whose headers name none.
UNKNOWN_CAUSE: Final = "not said"


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """The conditions; None matches any dead letter.

    Attributes:
        handler: the handler's name.
        error: the error's class, whole or without its module, or what `cause_of` says.
        reason: why it was dead-lettered, such as "exhausted".
        release: the release that failed on it.
        key: the record's key as text.
        headers: headers of the record's own, all of which it has: by name, and its value as text;
            None for any value.
        least_attempts, most_attempts: how many deliveries were made.
        since_ms, until_ms: when it failed, from and before, in wall-clock ms.
    """

    handler: str | None = None
    error: str | None = None
    reason: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    least_attempts: int | None = None
    most_attempts: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    release: str | None = None

    def matches(self, dead_letter: DeadLetter) -> bool:
        """Whether this one matches."""
        if self == _ANY:
            return True
        envelope = dead_letter.envelope
        return (
            self.handler in {None, envelope.handler}
            and self.reason in {None, envelope.reason}
            and self.release in {None, envelope.release}
            and (self.key is None or dead_letter.key == self.key.encode())
            and all(_has_header(dead_letter, *each) for each in self.headers)
            and _within(envelope.attempt, self.least_attempts, self.most_attempts)
            and self._in_time(failed_at_ms(dead_letter, envelope))
            and (self.error is None or self.error in _names_of_error(envelope))
        )

    def _in_time(self, at_ms: int) -> bool:
        return (self.since_ms is None or at_ms >= self.since_ms) and (
            self.until_ms is None or at_ms < self.until_ms
        )

    def to_dict(self) -> dict[str, Any]:
        """The conditions as JSON has them."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeadLetterFilter:
        """The same filter from what `to_dict` gave.

        Raises:
            ValueError: a condition is unknown to this version (more would match without it), or is
                not of its type.
        """
        unknown = data.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"unknown conditions: {', '.join(sorted(unknown))}")
        headers = data.get("headers", [])
        if isinstance(headers, list):
            each = (tuple(one) if isinstance(one, list) else one for one in headers)
            found = cls(**{**data, "headers": tuple(each)})
            if found._is_sound():
                return found
        raise ValueError(f"a condition is not of its type: {dict(data)}")

    def _is_sound(self) -> bool:
        """Whether all conditions are of their types: a note may hold anything."""
        texts: list[object] = [self.handler, self.error, self.reason, self.key, self.release]
        numbers = [self.least_attempts, self.most_attempts, self.since_ms, self.until_ms]
        return (
            all(isinstance(text, str | None) for text in texts)
            and all(type(number) in {int, NoneType} for number in numbers)
            and all(map(_is_header, self.headers))
        )


_ANY: Final = DeadLetterFilter()


def _is_header(value: object) -> bool:
    match value:
        case (str(), str() | None):
            return True
    return False


def _has_header(dead_letter: DeadLetter, wanted: str, value: str | None) -> bool:
    text = None if value is None else value.encode()
    return any(name == wanted and text in {None, own} for name, own in dead_letter.headers or ())


def _within(count: int, least: int | None, most: int | None) -> bool:
    return (least is None or count >= least) and (most is None or count <= most)


def _names_of_error(envelope: Envelope) -> set[str]:
    name = envelope.error_type or ""
    return {name, name.rpartition(".")[2], cause_of(envelope)} - {""}


def cause_of(envelope: Envelope) -> str:
    """A dead letter's cause: fingerprint, else error type, else reason."""
    return envelope.error_fingerprint or envelope.error_type or envelope.reason or UNKNOWN_CAUSE


def failed_at_ms(dead_letter: DeadLetter, envelope: Envelope | None = None) -> int:
    """When it failed; where its headers don't say, when it was written."""
    failed_ms = (dead_letter.envelope if envelope is None else envelope).failed_at_ms
    return dead_letter.timestamp_ms if failed_ms is None else failed_ms
