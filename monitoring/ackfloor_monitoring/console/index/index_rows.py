"""IndexRow and RetryRow: what the index keeps of one record, redacted and of bounded size."""

from __future__ import annotations

import hashlib
import zlib
from typing import Final, NamedTuple

from ackfloor.core.parking.topic_names import LONGEST_NAME
from ackfloor.core.records.envelope import DID_NOT_FAIL, Envelope
from ackfloor.core.records.record import Headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.dead_letter_filter import cause_of
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, own_headers
from ackfloor.dead_letters.rules.waiting import due_at_ms

#: Of an error's message so many characters, of a name so many.
MESSAGE: Final = 200
NAME: Final = 250
#: Longer keys are kept by their beginning and their hash, so that they can still be found.
KEY_BYTES: Final = 256
_KEY_BEGINNING: Final = 128
#: Characters of a topic's id; a header may have any.
LONGEST_ID: Final = 32
#: Of its own headers so many characters; what goes beyond is left out, and noted.
HEADERS: Final = 1_000
#: Between headers, and between a header's name and its value.
_NEXT: Final = "\x1e"
_IS: Final = "\x1f"
_NO_SEPARATORS: Final = str.maketrans({_NEXT: "\ufffd", _IS: "\ufffd"})
#: Of a number that SQLite can hold.
_BITS: Final = 63
#: The last millisecond of the year 9999: a header may have any number.
_LATEST_MS: Final = 253_402_300_799_999
#: The largest number of a partition or an offset that SQLite can hold.
_LARGEST: Final = 2**63 - 1


class Cause(NamedTuple):
    """What many dead letters of a topic have in common; "" where it is not known."""

    handler: str
    cause: str
    error_type: str
    reason: str
    release: str


class SourcePlace(NamedTuple):
    """Where a record was delivered for the first time: it names the record for ever."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class RetryRow(NamedTuple):
    """One record of a retry topic.

    Attributes:
        at_ms: when it failed last, or was written where it did not fail, in wall-clock ms.
        due_ms: when this wait ends; None where no time makes it due.
        source: None where its headers do not say.
        source_id: Kafka's id of that topic; "" where they do not say.
        source_ms: when it was written there, in wall-clock ms; None where it is not known.
    """

    partition: int
    offset: int
    cause: Cause
    at_ms: int
    due_ms: int | None
    attempt: int
    replays: int
    source: SourcePlace | None
    source_id: str
    source_ms: int | None


class IndexRow(NamedTuple):
    """One dead letter.

    Attributes:
        at_ms: when it failed for the last time, in wall-clock ms.
        first_ms: when it failed for the first time, in wall-clock ms.
        key: as `stored_key` has it.
        headers: its own, each as `stored_header` has it.
        header_bits: of each of them, as `header_bits` has it.
        headers_cut: whether some are left out.
        source, source_id, source_ms: as in `RetryRow`.
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
    header_bits: int
    headers_cut: bool
    source: SourcePlace | None
    source_id: str
    source_ms: int | None


def index_row(dead_letter: DeadLetter, rules: Redaction) -> IndexRow:
    """What is kept of a dead letter."""
    envelope = dead_letter.envelope
    at_ms = _time(envelope.failed_at_ms, dead_letter.timestamp_ms)
    return IndexRow(
        dead_letter.partition,
        dead_letter.offset,
        _cause(envelope),
        at_ms,
        min(at_ms, _time(envelope.first_failed_at_ms, at_ms)),
        envelope.attempt,
        envelope.replays,
        stored_key(dead_letter.key, rules),
        (rules.of_text(envelope.error_message) or "")[:MESSAGE],
        *_headers(dead_letter.headers, rules),
        source_place(envelope),
        source_id(envelope),
        _known_time(envelope.origin_timestamp_ms),
    )


def retry_row(record: DeadLetter) -> RetryRow:
    """What is kept of a record of a retry topic: no key, no header of its own, no message."""
    envelope = record.envelope
    failed = envelope.reason not in DID_NOT_FAIL
    return RetryRow(
        record.partition,
        record.offset,
        _cause(envelope),
        _time(envelope.failed_at_ms if failed else None, record.timestamp_ms),
        _known_time(due_at_ms(record)),
        envelope.attempt,
        envelope.replays,
        source_place(envelope),
        source_id(envelope),
        _known_time(envelope.origin_timestamp_ms),
    )


def source_place(envelope: Envelope) -> SourcePlace | None:
    """Where a record came from, as its headers say; None where they do not, or can't be right."""
    topic, partition, offset = (
        envelope.origin_topic, envelope.origin_partition, envelope.origin_offset,
    )  # fmt: skip
    if not topic or partition is None or offset is None:
        return None
    if len(topic) > LONGEST_NAME or not 0 <= partition <= _LARGEST or not 0 <= offset <= _LARGEST:
        return None
    return SourcePlace(topic, partition, offset)


def source_id(envelope: Envelope) -> str:
    """Kafka's id of the topic that a record came from; "" where its headers do not say.

    It is in the idempotency key, and is another one where the topic was created anew.
    """
    place_key, _, _ = (envelope.idempotency_key or "").partition("@")
    topic_id, *place = place_key.split("/")
    is_of_source = place == [str(envelope.origin_partition), str(envelope.origin_offset)]
    return topic_id if is_of_source and len(topic_id) <= LONGEST_ID else ""


def _cause(envelope: Envelope) -> Cause:
    names = (
        envelope.handler, cause_of(envelope), envelope.error_type, envelope.reason,
        envelope.release,
    )  # fmt: skip
    return Cause(*((name or "")[:NAME] for name in names))


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


def header_bits(stored: str) -> int:
    """Two bits that stand for a header, as `stored_header` or `named_header` has it.

    Where one of them is not set among those of a dead letter, it has no such header.
    """
    number = zlib.crc32(stored.encode("utf-8", "surrogatepass"))
    return 1 << number % _BITS | 1 << number // _BITS % _BITS


def _headers(headers: Headers | None, rules: Redaction) -> tuple[str, int, bool]:
    """The record's own headers, as many as there is room for, their bits, and whether some lack."""
    kept, bits, room = list[str](), 0, HEADERS
    own = own_headers(headers)
    for name, value in rules.of_headers(own) if own else ():
        text = stored_header(name, value)
        room -= len(text)
        if room < 0:
            return "".join(kept), bits, True
        kept.append(text)
        bits |= header_bits(text) | header_bits(named_header(name))
    return "".join(kept), bits, headers is None


def _time(said_ms: int | None, otherwise_ms: int) -> int:
    """A time that a header says, unless no calendar has it."""
    known_ms = _known_time(said_ms)
    return min(max(0, otherwise_ms), _LATEST_MS) if known_ms is None else known_ms


def _known_time(said_ms: int | None) -> int | None:
    return said_ms if said_ms is not None and 0 <= said_ms <= _LATEST_MS else None
