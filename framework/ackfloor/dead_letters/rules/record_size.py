"""SizeLimits: whether a record fits into its topic, as far as that is known before it is sent.

A broker measures the batch as it arrives, which is compressed. So a record that is larger than the
topic allows before compression may fit or not. Which one it is, only sending it tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackfloor.core.records.record import Headers

#: What a broker allows unless a topic says otherwise.
BROKER_DEFAULT: Final = 1_048_588
#: Bytes of a batch around its records, and of the only record in it around its parts.
_BATCH: Final = 61
_FIXED: Final = 3
#: What the client adds to a record's size at most, when it compares it with its own limit.
_ROUNDED_UP: Final = 128


class Fit(StrEnum):
    """Whether a record fits into its topic."""

    YES = "yes"
    PERHAPS = "perhaps"
    NO = "no"


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """What a topic and the client that writes into it allow, in bytes.

    Attributes:
        topic: of a batch as it arrives (`max.message.bytes`); None where the broker does not say.
        client: of a record before compression (`message.max.bytes`).
        compressed: whether the client compresses what it sends.
    """

    topic: int | None = None
    client: int = 2**31 - 1
    compressed: bool = True

    @property
    def batch(self) -> int:
        """The bytes of a batch that fits, whatever compression makes of it."""
        return min(self.topic or BROKER_DEFAULT, self.client)

    def fit(self, key: bytes | None, value: bytes | None, headers: Headers) -> Fit:
        """Whether a record fits, alone in its batch."""
        size = batch_size(key, value, headers)
        certain = not self.compressed and self.topic is not None
        if size > self.client or (certain and size > (self.topic or 0)):
            return Fit.NO
        room = self.client - _ROUNDED_UP
        return Fit.YES if size <= min(self.topic or BROKER_DEFAULT, room) else Fit.PERHAPS


def batch_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The bytes of a batch with this one record, before compression."""
    record = _FIXED + _part(key) + _part(value) + _number(len(headers))
    record += sum(_part(name.encode()) + _part(each) for name, each in headers)
    return _BATCH + _number(record) + record


def _part(value: bytes | None) -> int:
    """The bytes of a part with its length before it; a missing one has -1."""
    return 1 if value is None else _number(len(value)) + len(value)


def _number(number: int) -> int:
    """The bytes of a whole number of variable length, with its sign."""
    return max(1, -(-(2 * number).bit_length() // 7))
