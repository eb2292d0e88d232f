"""Outgoing records: what a value and headers that users publish are on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ackfloor.core.records.envelope import IDEMPOTENCY_KEY
from ackfloor.core.records.output import Output
from ackfloor.core.records.record import Headers

Value = bytes | str | BaseModel | None | dict[str, Any] | list[Any] | int | float | bool
HeadersGiven = Mapping[str, "str | bytes | None"] | Sequence[tuple[str, "str | bytes | None"]]


def encode(value: Value) -> bytes | None:
    """A value as it is written to Kafka."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return to_json(value)


def header_pairs(headers: HeadersGiven) -> Headers:
    """Headers as they are written to Kafka."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, text.encode() if isinstance(text, str) else text) for name, text in pairs]


def make_output(topic: Any, value: Any, key: Any, headers: Any, partition: Any) -> Output:
    """What a handler publishes, as it is written.

    Raises:
        TypeError: an argument is of another type; PydanticSerializationError where JSON can't hold
            the value.
    """
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"delivery.publish(topic={topic!r}): pass the name of a topic")
    if not isinstance(key, bytes | str | None):
        raise TypeError(f"delivery.publish(key={key!r}): pass bytes, text or None")
    if not isinstance(partition, int | None) or isinstance(partition, bool):
        raise TypeError(f"delivery.publish(partition={partition!r}): pass a number, or None")
    # Of a delivery's headers this one names the record that was delivered, and no other one.
    pairs = tuple(pair for pair in header_pairs(headers) if pair[0] != IDEMPOTENCY_KEY)
    raw_key = key.encode() if isinstance(key, str) else key
    return Output(topic, raw_key, encode(value), pairs, partition)
