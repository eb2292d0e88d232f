"""DeadLetterFilter: which dead letters are meant.

All of its conditions must be met, and none means any dead letter. It is data, never code: it can
be written into the note of a job and read back, so that a job that is resumed means the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import Any, Final

from ackfloor.core.records.envelope import Envelope
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter

#: The cause of a dead letter whose headers name none.
NOT_SAID: Final = "not said"


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are meant; None means any.

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

    def matches(self, letter: DeadLetter) -> bool:
        """Whether this one is meant."""
        if self == _ANY:
            return True
        told = letter.envelope
        return (
            self.handler in {None, told.handler}
            and self.reason in {None, told.reason}
            and self.release in {None, told.release}
            and (self.key is None or letter.key == self.key.encode())
            and all(_has_header(letter, *each) for each in self.headers)
            and _within(told.attempt, self.least_attempts, self.most_attempts)
            and self._in_time(failed_at_ms(letter, told))
            and (self.error is None or self.error in _names_of_error(told))
        )

    def _in_time(self, at_ms: int) -> bool:
        early = self.since_ms is not None and at_ms < self.since_ms
        return not early and (self.until_ms is None or at_ms < self.until_ms)

    def told(self) -> dict[str, Any]:
        """The conditions as JSON has them."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> DeadLetterFilter:
        """The same filter from what `told` gave.

        Raises:
            ValueError: a condition that this version does not know: it would be met by more; or
                one that is not of its type.
        """
        unknown = told.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"unknown conditions: {', '.join(sorted(unknown))}")
        headers = told.get("headers", [])
        if isinstance(headers, list):
            each = (tuple(one) if isinstance(one, list) else one for one in headers)
            found = cls(**{**told, "headers": tuple(each)})
            if found._is_sound():
                return found
        raise ValueError(f"a condition is not of its type: {dict(told)}")

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


def _is_header(told: object) -> bool:
    match told:
        case (str(), str() | None):
            return True
    return False


def _has_header(letter: DeadLetter, wanted: str, value: str | None) -> bool:
    text = None if value is None else value.encode()
    return any(name == wanted and text in {None, own} for name, own in letter.headers or ())


def _within(count: int, least: int | None, most: int | None) -> bool:
    return (least is None or count >= least) and (most is None or count <= most)


def _names_of_error(told: Envelope) -> set[str]:
    name = told.error_type or ""
    return {name, name.rpartition(".")[2], cause_of(told)} - {""}


def cause_of(told: Envelope) -> str:
    """What groups a dead letter with its like: fingerprint, else error type, else reason."""
    return told.error_fingerprint or told.error_type or told.reason or NOT_SAID


def failed_at_ms(letter: DeadLetter, told: Envelope | None = None) -> int:
    """When it failed; where its headers don't say, when it was written."""
    said = (letter.envelope if told is None else told).failed_at_ms
    return letter.timestamp_ms if said is None else said
