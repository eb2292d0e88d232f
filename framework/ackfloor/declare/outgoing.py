"""Outgoing records: what a value and headers that users publish are on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ackfloor.core.records.envelope import IDEMPOTENCY_KEY
from ackfloor.core.records.output import Output
from ackfloor.core.records.record import Headers

#: What Kafka takes as the name of a topic (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Of arguments; a union would be made anew for each call.
_KEY = (bytes, str, type(None))
#: A partition is a number of 32 bits with a sign.
MOST_PARTITIONS = 2**31

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
        ValueError: there can be no such topic, partition or header.
    """
    if not isinstance(topic, str):
        raise TypeError(f"delivery.publish(topic={topic!r}): pass the name of a topic")
    if not _is_name(topic):
        raise ValueError(
            f"delivery.publish(topic={topic!r}): no topic has that name; pass 1 to 249 of the "
            "letters a-z and A-Z, digits, '.', '_' and '-'"
        )
    if not isinstance(key, _KEY):
        raise TypeError(f"delivery.publish(key={key!r}): pass bytes, text or None")
    if partition is not None:
        _check_partition(partition)
    raw_key = key.encode() if isinstance(key, str) else key
    return Output(topic, raw_key, encode(value), _headers_of(headers), partition)


@lru_cache(1_000)
def _is_name(topic: str) -> bool:
    """Whether a topic may be called so; a handler has few, and publishes to them often."""
    return _TOPIC.fullmatch(topic) is not None and topic not in {".", ".."}


def _check_partition(partition: Any) -> None:
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise TypeError(f"delivery.publish(partition={partition!r}): pass a number, or None")
    if not 0 <= partition < MOST_PARTITIONS:
        raise ValueError(
            f"delivery.publish(partition={partition!r}): pass the number of a partition of the "
            "topic, or None"
        )


def _headers_of(headers: Any) -> Headers:
    if headers == ():
        return ()
    # Of a delivery's headers this one names the record that was delivered, and no other one.
    return tuple(pair for pair in _checked(headers) if pair[0] != IDEMPOTENCY_KEY)


def _checked(headers: Any) -> Headers:
    """Headers that the client takes, as they are written."""
    pairs = header_pairs(headers)
    name: Any
    value: Any
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise TypeError(
                f"delivery.publish(headers): {name!r}: {value!r} is no header; pass a text as the "
                "name, and text, bytes or None"
            )
        if "\0" in name or not _encodes(name):
            raise ValueError(f"delivery.publish(headers): {name!r} can't be the name of a header")
    return pairs


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
