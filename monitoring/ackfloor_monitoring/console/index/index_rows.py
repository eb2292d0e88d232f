"""IndexRow: what the index keeps of one dead letter, redacted and of bounded size."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.dead_letter_filter import cause_of
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, own_headers

#: Of an error's message so many characters, of a name so many.
MESSAGE: Final = 200
NAME: Final = 250
#: Longer keys are kept by their beginning and their hash, so that they can still be found.
KEY_BYTES: Final = 256
_KEY_BEGINNING: Final = 128
#: Of its own headers so many characters; what goes beyond is left out, and noted.
HEADERS: Final = 1_000
#: Between headers, and between a header's name and its value.
_NEXT: Final = "\x1e"
_IS: Final = "\x1f"
_NO_SEPARATORS: Final = str.maketrans({_NEXT: "\ufffd", _IS: "\ufffd"})
#: The last millisecond of the year 9999: a header may have any number.
_LATEST_MS: Final = 253_402_300_799_999


class Cause(NamedTuple):
    """What many dead letters of a topic have in common; "" where it is not known."""

    handler: str
    cause: str
    error_type: str
    reason: str
    release: str


class IndexRow(NamedTuple):
    """One dead letter.

    Attributes:
        at_ms: when it failed for the last time, in wall-clock ms.
        first_ms: when it failed for the first time, in wall-clock ms.
        key: as `stored_key` has it.
        headers: its own, each as `stored_header` has it.
        headers_cut: whether some are left out.
    """

    partition: int
    offset: int
    cause: Cause
    at_ms: int
    first_ms: int
    attempt: int
    replays: int
    key: bytes | None
    message: str
    headers: str
    headers_cut: bool


def index_row(dead_letter: DeadLetter, rules: Redaction) -> IndexRow:
    """What is kept of a dead letter."""
    envelope = dead_letter.envelope
    at_ms = _time(envelope.failed_at_ms, dead_letter.timestamp_ms)
    names = (
        envelope.handler, cause_of(envelope), envelope.error_type, envelope.reason,
        envelope.release,
    )  # fmt: skip
    return IndexRow(
        dead_letter.partition,
        dead_letter.offset,
        Cause(*((name or "")[:NAME] for name in names)),
        at_ms,
        min(at_ms, _time(envelope.first_failed_at_ms, at_ms)),
        envelope.attempt,
        envelope.replays,
        stored_key(dead_letter.key, rules),
        (rules.of_text(envelope.error_message) or "")[:MESSAGE],
        *_headers(dead_letter.headers, rules),
    )


def stored_key(key: bytes | None, rules: Redaction) -> bytes | None:
    """A key as the index has it: redacted, and a long one shortened."""
    kept = rules.of_key(key)
    if kept is None or len(kept) <= KEY_BYTES:
        return kept
    beginning = kept[:_KEY_BEGINNING].decode("utf-8", "ignore").encode()
    return b"%s... (SHA-256 %s)" % (beginning, hashlib.sha256(kept).hexdigest().encode())


def stored_header(name: str, value: bytes | None) -> str:
    """What the index has of a header that has this value."""
    text = (value or b"").decode("utf-8", "replace").translate(_NO_SEPARATORS)
    return f"{named_header(name)}{text}{_NEXT}"


def named_header(name: str) -> str:
    """What the index has of a header of this name, whatever its value."""
    return f"{_NEXT}{name.translate(_NO_SEPARATORS)}{_IS}"


def _headers(headers: Headers | None, rules: Redaction) -> tuple[str, bool]:
    """The record's own headers, as many as there is room for, and whether some are left out."""
    kept, room = list[str](), HEADERS
    own = own_headers(headers)
    for name, value in rules.of_headers(own) if own else ():
        text = stored_header(name, value)
        room -= len(text)
        if room < 0:
            return "".join(kept), True
        kept.append(text)
    return "".join(kept), headers is None


def _time(said_ms: int | None, otherwise_ms: int) -> int:
    """A time that a header says, unless no calendar has it."""
    if said_ms is not None and 0 <= said_ms <= _LATEST_MS:
        return said_ms
    return min(max(0, otherwise_ms), _LATEST_MS)
