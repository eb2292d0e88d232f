"""Wire format between a worker and a handler's process: records there, outcomes back.

A record is a tuple of what the client can tell of it; an outcome is a dictionary of text and
numbers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ackfloor.core.records.envelope import MESSAGE_CAP, STACK_CAP, Envelope, Reason
from ackfloor.core.records.outcomes import (
    ACKED,
    RELEASED,
    Acked,
    Discarded,
    Failed,
    Outcome,
    Paused,
    Rejected,
)
from ackfloor.core.records.output import Output
from ackfloor.core.records.record import Failure, Headers
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery


class SentRecord(NamedTuple):
    """A record as it was sent; `Sent` gives it the shape that handlers know."""

    number: int
    topic: str
    topic_id: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: tuple[int, int]
    leader_epoch: int | None
    envelope: Envelope | None


def sent(number: int, delivery: TrackedDelivery) -> tuple[Any, ...]:
    """A delivery on its way to a process; a plain tuple, which is pickled fastest."""
    record = delivery.record
    return (
        number,
        delivery.assignment.topic,
        delivery.assignment.topic_id,
        delivery.assignment.partition,
        delivery.record_offset,
        record.key(),
        record.value(),
        delivery.headers,
        record.timestamp(),
        record.leader_epoch(),
        delivery.envelope,
    )


def output_to_list(output: Output) -> list[Any]:
    """An output as a JSON message has it."""
    headers = [[name, _text(value)] for name, value in output.headers]
    return [output.topic, _text(output.key), _text(output.value), headers, output.partition]


def output_from_list(item: Sequence[Any]) -> Output:
    """The output that `output_to_list` wrote."""
    topic, key, value, headers, partition = item
    pairs = tuple((str(name), _bytes(text)) for name, text in headers)
    return Output(str(topic), _bytes(key), _bytes(value), pairs, partition)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class SentBatch(NamedTuple):
    """The records of one call, under one number."""

    number: int
    records: list[tuple[Any, ...]]


class Sent:
    """A record in a handler's process; see `core.model.Record`."""

    __slots__ = ("_sent",)

    def __init__(self, sent: SentRecord) -> None:
        self._sent = sent

    def topic(self) -> str:
        return self._sent.topic

    def partition(self) -> int:
        return self._sent.partition

    def offset(self) -> int:
        return self._sent.offset

    def key(self) -> bytes | None:
        return self._sent.key

    def value(self) -> bytes | None:
        return self._sent.value

    def headers(self) -> Headers | None:
        return self._sent.headers

    def timestamp(self) -> tuple[int, int]:
        return self._sent.timestamp

    def leader_epoch(self) -> int | None:
        return self._sent.leader_epoch

    def __len__(self) -> int:
        return len(self._sent.value or b"")


def outcome_to_dict(outcome: Outcome, redaction: Redaction = NO_REDACTION) -> dict[str, Any]:
    """An outcome as a JSON message.

    Args:
        outcome: how it ended.
        redaction: what is masked before texts are cut: what was cut might not match any more.
    """
    if isinstance(outcome, Acked):
        return {"kind": "acked"}
    if isinstance(outcome, Failed):
        return {
            "kind": "failed",
            "reason": outcome.reason.value,
            "after_s": outcome.after_s,
            **_failure(outcome.failure, redaction),
        }
    if isinstance(outcome, Rejected):
        return {
            "kind": "rejected",
            "reason": outcome.reason.value,
            **_failure(outcome.failure, redaction),
        }
    if isinstance(outcome, Paused):
        return {"kind": "held", "duration_s": outcome.duration_s, "text": _short(outcome.reason)}
    if isinstance(outcome, Discarded):
        return {"kind": "discarded", "text": _short(outcome.reason)}
    return {"kind": "released"}


def _short(reason: object) -> str:
    return str(reason)[:MESSAGE_CAP]


def _failure(failure: Failure, redaction: Redaction) -> dict[str, str]:
    return {
        "type": failure.error_type,
        # What is written to headers in the end; a process should not hold its worker up with more.
        "message": (redaction.of_text(failure.message) or "")[:MESSAGE_CAP],
        "stack": (redaction.of_text(failure.stack) or "")[-STACK_CAP:],
        "fingerprint": failure.fingerprint,
    }


def outcome_from_dict(message: Mapping[str, Any]) -> Outcome:
    """The outcome that `outcome_to_dict` wrote."""
    kind = message["kind"]
    if kind == "acked":
        return ACKED
    if kind == "discarded":
        return Discarded(message["text"])
    if kind == "held":
        return Paused(message["duration_s"], message["text"])
    if kind == "released":
        return RELEASED
    failure = Failure(message["type"], message["message"], message["stack"], message["fingerprint"])
    if kind == "rejected":
        return Rejected(failure, Reason(message["reason"]))
    return Failed(failure, Reason(message["reason"]), message["after_s"])
