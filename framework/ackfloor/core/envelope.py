"""Envelope: what our headers say about a parked record.

All values are UTF-8 text under one prefix. A record's key, value and own headers pass through
byte-identical, in order, repeated names included; only headers under our prefix are replaced.
They carry the first origin and the last error, so they never grow with attempts. Reading never
fails: what can't be read is named in `unreadable` and treated as absent.

`attempt` counts the deliveries made so far, so a record in a tier with attempt 2 is about to be
delivered for the third time. `not_before` is when this wait ends; `retry_at` is there only
where an explicit wait needs further hops after it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from ackfloor.core.model import Headers

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
TRUNCATED: Final = "ackfloor.truncated"

#: Caps of the two headers that could be large, in bytes of UTF-8.
MESSAGE_CAP: Final = 2_048
STACK_CAP: Final = 16_384


class Reason(StrEnum):
    """Why a record was parked or dead-lettered."""

    TIMEOUT = "timeout"
    ERROR = "error"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    DECODE = "decode"
    EXHAUSTED = "exhausted"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Envelope:
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
    truncated: str | None = None
    unreadable: tuple[str, ...] = ()


def _text(value: bytes) -> str:
    return value.decode("utf-8")


def _count(value: bytes) -> int:
    if not value.isdigit():
        raise ValueError("not a count")
    return int(value)


def _whole(value: bytes) -> int:
    digits = value[1:] if value.startswith(b"-") else value
    if not digits.isdigit() or len(digits) > 18:
        raise ValueError("not a whole number")
    return int(value)


def _reason(value: bytes) -> Reason:
    return Reason(value.decode("utf-8"))


_READERS: Final = {
    ORIGIN_TOPIC: ("origin_topic", _text),
    ORIGIN_PARTITION: ("origin_partition", _count),
    ORIGIN_OFFSET: ("origin_offset", _count),
    ORIGIN_TIMESTAMP: ("origin_timestamp_ms", _whole),
    GROUP: ("group", _text),
    HANDLER: ("handler", _text),
    ATTEMPT: ("attempt", _count),
    FAILURES: ("failures", _count),
    TIMEOUTS: ("timeouts", _count),
    REASON: ("reason", _reason),
    ERROR_TYPE: ("error_type", _text),
    ERROR_MESSAGE: ("error_message", _text),
    ERROR_STACK: ("error_stack", _text),
    ERROR_FINGERPRINT: ("error_fingerprint", _text),
    FIRST_FAILED_AT: ("first_failed_at_ms", _whole),
    FAILED_AT: ("failed_at_ms", _whole),
    NOT_BEFORE: ("not_before_ms", _whole),
    RETRY_AT: ("retry_at_ms", _whole),
    DURATION_MS: ("duration_ms", _count),
    RELEASE: ("release", _text),
    WORKER: ("worker", _text),
    REPLAYS: ("replays", _count),
    TRUNCATED: ("truncated", _text),
}
#: Every header of ours, in the order in which they are written.
HEADERS: Final = tuple(_READERS)


def read_envelope(headers: Headers | None) -> Envelope:
    """What a record's headers say; of a repeated header the last one counts. Never raises."""
    found: dict[str, Any] = {}
    unreadable: dict[str, None] = {}
    for name, value in headers or ():
        if not name.startswith(PREFIX) or name not in _READERS:
            continue
        field, read = _READERS[name]
        try:
            found[field] = read(value)  # type: ignore[arg-type]
            unreadable.pop(name, None)
        except (ValueError, AttributeError):  # AttributeError: a null value
            found.pop(field, None)
            unreadable[name] = None
    return Envelope(**found, unreadable=tuple(unreadable))


def write_headers(envelope: Envelope, own: Headers) -> list[tuple[str, bytes | None]]:
    """A parked record's headers: its own as they are, then ours anew."""
    written = [header for header in own if not header[0].startswith(PREFIX)]
    for name, (field, _) in _READERS.items():
        value = getattr(envelope, field)
        if value is None or (value == 0 and field == "replays"):
            continue
        if name == ERROR_MESSAGE:
            value = _cut(value, MESSAGE_CAP)
        elif name == ERROR_STACK:
            value = _cut_front(value, STACK_CAP)
        written.append((name, str(value).encode("utf-8", "replace")))
    return written


def _cut(text: str, cap: int) -> str:
    """The head of a text, at most `cap` bytes of UTF-8."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= cap else raw[:cap].decode("utf-8", "ignore")


def _cut_front(text: str, cap: int) -> str:
    """The tail of a text: the innermost frames of a stack are what is read."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= cap else raw[-cap:].decode("utf-8", "ignore")


def shed(envelope: Envelope) -> Envelope | None:
    """Too large to park: drop the stack, the next time the message; None when both are gone."""
    if envelope.error_stack is not None:
        return replace(envelope, error_stack=None, truncated="stack")
    if envelope.error_message is not None:
        return replace(envelope, error_message=None, truncated="stack,message")
    return None


def fingerprint(error_type: str, frames: Sequence[tuple[str, str]]) -> str:
    """What groups an error with its like: its type and its innermost frame in user code.

    Args:
        error_type: the exception's class.
        frames: (file name, function) of the frames in user code, outermost first.
    """
    where = ":".join(frames[-1]) if frames else ""
    return hashlib.sha256(f"{error_type}|{where}".encode("utf-8", "replace")).hexdigest()[:16]


def foreign_headers(
    envelope: Envelope, *, spring: bool, kafka: bool
) -> list[tuple[str, bytes | None]]:
    """The same facts under the names other tools read.

    Args:
        spring: Spring Kafka's `kafka_dlt-*` (numbers as big-endian binary).
        kafka: Kafka's own `__dlq.errors.*` (KIP-1191, UTF-8 text).
    """
    written: list[tuple[str, bytes | None]] = []

    def text(name: str, value: object) -> None:
        if value is not None:
            written.append((name, str(value).encode("utf-8", "replace")))

    def binary(name: str, form: str, value: int | None) -> None:
        if value is not None:
            written.append((name, struct.pack(form, value)))

    e = envelope
    if spring:
        text("kafka_dlt-original-topic", e.origin_topic)
        binary("kafka_dlt-original-partition", ">i", e.origin_partition)
        binary("kafka_dlt-original-offset", ">q", e.origin_offset)
        binary("kafka_dlt-original-timestamp", ">q", e.origin_timestamp_ms)
        text("kafka_dlt-original-consumer-group", e.group)
        text("kafka_dlt-exception-fqcn", e.error_type)
        text("kafka_dlt-exception-message", e.error_message and _cut(e.error_message, MESSAGE_CAP))
        text(
            "kafka_dlt-exception-stacktrace", e.error_stack and _cut_front(e.error_stack, STACK_CAP)
        )
    if kafka:
        text("__dlq.errors.topic", e.origin_topic)
        text("__dlq.errors.partition", e.origin_partition)
        text("__dlq.errors.offset", e.origin_offset)
        text("__dlq.errors.group", e.group)
        text("__dlq.errors.delivery.count", e.attempt)
        text("__dlq.errors.message", e.error_message and _cut(e.error_message, MESSAGE_CAP))
    return written
