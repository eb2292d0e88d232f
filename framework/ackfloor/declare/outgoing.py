"""Outgoing records: what a value and headers that users publish are on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

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
