"""Envelope: the `ackfloor.` headers of a parked record, written and read.

All values are UTF-8 text under one prefix. A record's key, value and own headers pass through
byte-identical, in order, repeated names included; only headers under our prefix are replaced.
They carry the first origin and the last error, so they never grow with attempts. Reading never
fails: what can't be read is named in `unreadable` and treated as absent.

Order tells whose a header is: a parked record's own come first, then ours, then the copies for
other tools. A `kafka_dlt-*` in front of ours came with the record and stays; one behind ours is
an earlier copy and is replaced.

A park writes some twenty headers, most of which the parks of a turn, a cause or a tier have in
common. So each of those is encoded once (`_writer`), and an envelope is a tuple, which is made and
gone through without a step of Python for each field.

`attempt` counts the deliveries made so far, so a record in a tier with attempt 2 is about to be
delivered for the third time. `not_before` is when this wait ends; `retry_at` is there only
where an explicit wait needs further hops after it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Sequence
from enum import StrEnum
from functools import lru_cache
from operator import call
from typing import Any, Final, NamedTuple

from ackfloor.core.records.record import Failure, Headers

PREFIX: Final = "ackfloor."
ORIGIN_TOPIC: Final = "ackfloor.origin.topic"
ORIGIN_PARTITION: Final = "ackfloor.origin.partition"
ORIGIN_OFFSET: Final = "ackfloor.origin.offset"
ORIGIN_TIMESTAMP: Final = "ackfloor.origin.timestamp"
GROUP: Final = "ackfloor.group"
HANDLER: Final = "ackfloor.handler"
ATTEMPT: Final = "ackfloor.attempt"
FAILURES: Final = "ackfloor.failures"
TIMEOUTS: Final = "ackfloor.timeouts"
REASON: Final = "ackfloor.reason"
ERROR_TYPE: Final = "ackfloor.error.type"
ERROR_MESSAGE: Final = "ackfloor.error.message"
ERROR_STACK: Final = "ackfloor.error.stack"
ERROR_FINGERPRINT: Final = "ackfloor.error.fingerprint"
FIRST_FAILED_AT: Final = "ackfloor.first_failed_at"
FAILED_AT: Final = "ackfloor.failed_at"
NOT_BEFORE: Final = "ackfloor.not_before"
RETRY_AT: Final = "ackfloor.retry_at"
DURATION_MS: Final = "ackfloor.duration_ms"
RELEASE: Final = "ackfloor.release"
WORKER: Final = "ackfloor.worker"
REPLAYS: Final = "ackfloor.replays"
EDITED: Final = "ackfloor.edited"
IDEMPOTENCY_KEY: Final = "ackfloor.idempotency_key"
TRUNCATED: Final = "ackfloor.truncated"

#: Caps of the two headers that could be large, in bytes of UTF-8.
MESSAGE_CAP: Final = 2_048
STACK_CAP: Final = 16_384
_LARGEST_INT32: Final = 2**31 - 1
_MOST_DIGITS: Final = 18

_SPRING: Final = "kafka_dlt-"
_SPRING_TIMESTAMP_TYPE: Final = "kafka_dlt-original-timestamp-type"
_KAFKA: Final = "__dlq.errors."
#: The client's codes for whose clock a record's timestamp is, and Kafka's names for them.
_TIMESTAMP_TYPES: Final = {1: "CreateTime", 2: "LogAppendTime"}


class Reason(StrEnum):
    """Why a record was parked or dead-lettered."""

    TIMEOUT = "timeout"
    ERROR = "error"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    DECODE = "decode"
    EXHAUSTED = "exhausted"
    CRASH = "crash"
    BEHIND = "behind"
    """It did not fail: a record of its key in front of it did."""
    HELD = "held"
    """It is dead-lettered, and holds those behind it until an operator decides."""


#: Of a record that waits for another one of its key: nothing is told of an error of its own.
DID_NOT_FAIL: Final = frozenset({Reason.BEHIND, Reason.HELD})


class Envelope(NamedTuple):
    """The headers of a parked record; None where absent, times in wall-clock ms.

    Attributes:
        unreadable: names of our headers that were there and could not be read.
    """

    origin_topic: str | None = None
    origin_partition: int | None = None
    origin_offset: int | None = None
    origin_timestamp_ms: int | None = None
    group: str | None = None
    handler: str | None = None
    attempt: int = 0
    failures: int = 0
    timeouts: int = 0
    reason: Reason | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_stack: str | None = None
    error_fingerprint: str | None = None
    first_failed_at_ms: int | None = None
    failed_at_ms: int | None = None
    not_before_ms: int | None = None
    retry_at_ms: int | None = None
    duration_ms: int | None = None
    release: str | None = None
    worker: str | None = None
    replays: int = 0
    edited: str | None = None
    idempotency_key: str | None = None
    truncated: str | None = None
    unreadable: tuple[str, ...] = ()

    @property
    def failure(self) -> Failure:
        """The last failure that it names; texts are empty where it names none."""
        return Failure(
            self.error_type or "",
            self.error_message or "",
            self.error_stack or "",
            self.error_fingerprint or "",
        )


_text: Final = bytes.decode


def _count(value: bytes) -> int:
    # Not the value's own method: text has one as well, and is no header.
    if not bytes.isdigit(value) or len(value) > _MOST_DIGITS:
        raise ValueError("not a count")
    return int(value)


def _partition(value: bytes) -> int:
    if (partition := _count(value)) > _LARGEST_INT32:
        raise ValueError("not a partition")
    return partition


def _whole(value: bytes) -> int:
    return -_count(value[1:]) if value.startswith(b"-") else _count(value)


def _reason(value: bytes) -> Reason:
    return Reason(value.decode("utf-8"))


_READERS: Final[dict[str, Callable[[bytes], object]]] = {
    ORIGIN_TOPIC: _text,
    ORIGIN_PARTITION: _partition,
    ORIGIN_OFFSET: _count,
    ORIGIN_TIMESTAMP: _whole,
    GROUP: _text,
    HANDLER: _text,
    ATTEMPT: _count,
    FAILURES: _count,
    TIMEOUTS: _count,
    REASON: _reason,
    ERROR_TYPE: _text,
    ERROR_MESSAGE: _text,
    ERROR_STACK: _text,
    ERROR_FINGERPRINT: _text,
    FIRST_FAILED_AT: _whole,
    FAILED_AT: _whole,
    NOT_BEFORE: _whole,
    RETRY_AT: _whole,
    DURATION_MS: _count,
    RELEASE: _text,
    WORKER: _text,
    REPLAYS: _count,
    EDITED: _text,
    IDEMPOTENCY_KEY: _text,
    TRUNCATED: _text,
}
#: Every header of ours, in the order in which they are written: that of the envelope's fields.
HEADERS: Final = tuple(_READERS)
#: Header -> the place of its field in an envelope, and what reads it.
_PLACES: Final = {name: (place, read) for place, (name, read) in enumerate(_READERS.items())}
_NOTHING: Final = Envelope()


def read_envelope(headers: Headers | None) -> Envelope:
    """The envelope in these headers; of a repeated header the last one counts. Never raises."""
    if not headers:
        return _NOTHING
    found: list[Any] = list(_NOTHING)
    unreadable: dict[str, None] = {}
    for name, value in headers:
        known = _PLACES.get(name)
        if known is None:
            continue
        place, read = known
        try:
            found[place] = read(value)  # type: ignore[arg-type]
            if unreadable:
                unreadable.pop(name, None)
        except (ValueError, AttributeError, TypeError):  # not bytes, as well as unreadable bytes
            found[place] = _NOTHING[place]
            unreadable[name] = None
    found[-1] = tuple(unreadable)
    return Envelope._make(found)


def read_number(value: bytes | None) -> int | None:
    """A number in one of our headers; None where it is missing or not a number."""
    try:
        return None if value is None else _whole(value)
    except ValueError:
        return None


def read_count(value: bytes | None) -> int | None:
    """A number from 0 in one of our headers; None where it is missing or no such number."""
    try:
        return None if value is None else _count(value)
    except ValueError:
        return None


def read_text(value: bytes | None) -> str | None:
    """The text of one of our headers; None where it is missing or not UTF-8."""
    try:
        return None if value is None else _text(value)
    except ValueError:
        return None


def write_headers(
    envelope: Envelope,
    own: Headers,
    *,
    spring: bool = False,
    kafka: bool = False,
    timestamp_type: int = 0,
) -> list[tuple[str, bytes | None]]:
    """A parked record's headers: its own as they are, then ours anew, then copies asked for.

    Args:
        own: the headers of the record that is parked, earlier ones of ours included.
        spring: also write Spring's names, see `foreign_headers`.
        kafka: also write Kafka's names.
        timestamp_type: the parked record's, as the client gives it.
    """
    if not (spring or kafka):
        return [header for header in own if not header[0].startswith(PREFIX)] + _ours(envelope)
    prefixes = (*([_SPRING] if spring else []), *([_KAFKA] if kafka else []))
    written: list[tuple[str, bytes | None]] = []
    copied: dict[str, bytes | None] = {}
    parked_before = False
    for name, value in own:
        if name.startswith(PREFIX):
            parked_before = True
        elif parked_before and name.startswith(prefixes) and name in _FOREIGN:
            copied[name] = value
        else:
            written.append((name, value))
    written += _ours(envelope)
    if parked_before:
        # A tier's timestamp is not the origin's; what the first park wrote is.
        copied_type = copied.get(_SPRING_TIMESTAMP_TYPE)
        timestamp_type = next(
            (t for t, n in _TIMESTAMP_TYPES.items() if n.encode() == copied_type), 0
        )
    written += foreign_headers(envelope, spring=spring, kafka=kafka, timestamp_type=timestamp_type)
    return written


def redriven_key(envelope: Envelope, topic: str) -> str | None:
    """The idempotency key that a record was redriven to its source topic with; None for none.

    Only there: a handler may publish what it was given to another topic with all its headers, and
    that is another record.
    """
    came_back = envelope.replays > 0 and envelope.origin_topic == topic
    return (envelope.idempotency_key or None) if came_back else None


def copies_for_others(headers: Headers) -> tuple[bool, bool]:
    """Whether a parked record carries copies of our headers in Spring's names, and in Kafka's."""
    behind = False
    copies: set[str] = set()
    for name, _ in headers:
        behind = behind or name.startswith(PREFIX)
        if behind and name in _FOREIGN:
            copies.add(_SPRING if name.startswith(_SPRING) else _KAFKA)
    return _SPRING in copies, _KAFKA in copies


def _ours(envelope: Envelope) -> list[tuple[str, bytes | None]]:
    """Its headers, those that are there. Its last field, which has none, is left over."""
    return list(filter(None, map(call, _WRITERS, envelope)))


def _encoded(field: str, value: object) -> bytes:
    """A field as UTF-8, capped: of a message its head, of a stack its tail, where the error is."""
    if isinstance(value, int):
        return b"%d" % value
    raw = str(value).encode("utf-8", "replace")
    if field == "error_message" and len(raw) > MESSAGE_CAP:
        return raw[:MESSAGE_CAP].decode("utf-8", "ignore").encode()
    if field == "error_stack" and len(raw) > STACK_CAP:
        return raw[-STACK_CAP:].decode("utf-8", "ignore").encode()
    return raw


#: Fields that nearly each record has a value of its own for.
_OWN: Final = frozenset(
    {
        *("origin_offset", "origin_timestamp_ms", "error_message", "error_stack", "duration_ms"),
        "idempotency_key",
    }
)
#: So many values of each other field are kept as headers.
_KEPT: Final = 256


def _writer(name: str, field: str) -> Callable[[Any], tuple[str, bytes | None] | None]:
    """What makes a header of a field's value; None where it is absent."""
    absent = (None, 0) if field == "replays" else (None,)

    def write(value: Hashable) -> tuple[str, bytes | None] | None:
        return None if value in absent else (name, _encoded(field, value))

    return write if field in _OWN else lru_cache(_KEPT)(write)


_WRITERS: Final = tuple(map(_writer, HEADERS, Envelope._fields))


def shed(envelope: Envelope) -> Envelope | None:
    """Too large to park: drop the stack, the next time the message; None when both are gone."""
    dropped = envelope.truncated.split(",") if envelope.truncated else []
    if envelope.error_stack is not None:
        return envelope._replace(error_stack=None, truncated=_named([*dropped, "stack"]))
    if envelope.error_message is not None:
        return envelope._replace(error_message=None, truncated=_named([*dropped, "message"]))
    return None


def _named(dropped: Sequence[str]) -> str:
    return ",".join(part for part in ("headers", "stack", "message") if part in dropped)


def fingerprint(error_type: str, frames: Sequence[tuple[str, str]]) -> str:
    """The key of an error's group: its type and its innermost frame in user code.

    Args:
        error_type: the exception's class.
        frames: (file name, function) of the frames in user code, outermost first.
    """
    return _hashed(error_type, ":".join(frames[-1]) if frames else "")


@lru_cache(_KEPT)
def _hashed(error_type: str, where: str) -> str:
    return hashlib.sha256(f"{error_type}|{where}".encode("utf-8", "replace")).hexdigest()[:16]


#: Other tools' headers: name -> (our field, struct format of a binary number or "" for text).
_FOREIGN: Final = {
    "kafka_dlt-original-topic": ("origin_topic", ""),
    "kafka_dlt-original-partition": ("origin_partition", ">i"),
    "kafka_dlt-original-offset": ("origin_offset", ">q"),
    "kafka_dlt-original-timestamp": ("origin_timestamp_ms", ">q"),
    _SPRING_TIMESTAMP_TYPE: ("", ""),
    "kafka_dlt-original-consumer-group": ("group", ""),
    "kafka_dlt-exception-fqcn": ("error_type", ""),
    "kafka_dlt-exception-message": ("error_message", ""),
    "kafka_dlt-exception-stacktrace": ("error_stack", ""),
    "__dlq.errors.topic": ("origin_topic", ""),
    "__dlq.errors.partition": ("origin_partition", ""),
    "__dlq.errors.offset": ("origin_offset", ""),
    "__dlq.errors.group": ("group", ""),
    "__dlq.errors.delivery.count": ("attempt", ""),
    "__dlq.errors.message": ("error_message", ""),
}


def foreign_headers(
    envelope: Envelope, *, spring: bool, kafka: bool, timestamp_type: int = 0
) -> list[tuple[str, bytes | None]]:
    """The same facts under the names other tools read.

    Args:
        spring: Spring Kafka's `kafka_dlt-*` (numbers as big-endian binary).
        kafka: Kafka's own `__dlq.errors.*` (KIP-1191, UTF-8 text).
        timestamp_type: of the origin, as the client gives it; 0 where it is not known.
    """
    written: list[tuple[str, bytes | None]] = []
    for name, (field, form) in _FOREIGN.items():
        if not (spring if name.startswith(_SPRING) else kafka):
            continue
        value = getattr(envelope, field) if field else _TIMESTAMP_TYPES.get(timestamp_type)
        if value is None:
            continue
        written.append((name, struct.pack(form, value) if form else _encoded(field, value)))
    return written
