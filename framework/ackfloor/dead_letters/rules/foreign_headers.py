"""Reads the dead-letter headers of other tools: Spring, Connect, share groups, Karafka.

Spring Kafka, Kafka Connect, the dead-letter queue of Kafka's share groups, and Karafka each write
what failed and where it came from under names of their own. It is read for people only: so that
such a topic can be listed by cause, filtered and understood. It decides nothing: a dead letter
without our headers is sent only to a topic that an operator names.

Reading never fails: what can't be read is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ackfloor.core.records.record import Headers


@dataclass(frozen=True, slots=True)
class ForeignDeadLetter:
    """A dead letter's facts by another tool's headers; "" and None where missing.

    Attributes:
        tool: whose headers they are.
        origin: topic, partition and offset that it came from, as far as known.
        handler: what failed on it: a connector, or nothing.
    """

    tool: str
    origin: str = ""
    group: str | None = None
    handler: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_stack: str | None = None
    attempt: int = 0


#: Tool -> fact -> headers, in the order of preference.
_NAMES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "spring": {
        "topic": ("kafka_dlt-original-topic",),
        "partition": ("kafka_dlt-original-partition",),
        "offset": ("kafka_dlt-original-offset",),
        "group": ("kafka_dlt-original-consumer-group",),
        # Spring's own exception is around the one that the listener raised.
        "error_type": ("kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"),
        "error_message": ("kafka_dlt-exception-message",),
        "error_stack": ("kafka_dlt-exception-stacktrace",),
    },
    "connect": {
        "topic": ("__connect.errors.topic",),
        "partition": ("__connect.errors.partition",),
        "offset": ("__connect.errors.offset",),
        "handler": ("__connect.errors.connector.name",),
        "error_type": ("__connect.errors.exception.class.name",),
        "error_message": ("__connect.errors.exception.message",),
        "error_stack": ("__connect.errors.exception.stacktrace",),
    },
    "kafka": {
        "topic": ("__dlq.errors.topic",),
        "partition": ("__dlq.errors.partition",),
        "offset": ("__dlq.errors.offset",),
        "group": ("__dlq.errors.group",),
        "error_message": ("__dlq.errors.message",),
        "attempt": ("__dlq.errors.delivery.count",),
    },
    "karafka": {
        "topic": ("source_topic",),
        "partition": ("source_partition",),
        "offset": ("source_offset",),
        "group": ("source_consumer_group",),
        "attempt": ("source_attempts",),
    },
}
#: The headers that name a dead letter's cause, for grouping.
CAUSES: Final = tuple(
    name
    for names in _NAMES.values()
    for fact in ("handler", "error_type")
    for name in names.get(fact, ())
)


def read_foreign(headers: Headers | None) -> ForeignDeadLetter | None:
    """The facts in another tool's headers; None where no known tool wrote them."""
    values = {name: value for name, value in headers or () if value is not None}
    for tool, names in _NAMES.items():
        if names["topic"][0] not in values:
            continue
        found: dict[str, Any] = {}
        for fact, choices in names.items():
            texts = (_text(fact, values[name]) for name in choices if name in values)
            text = next(filter(None, texts), None)
            if text is not None:
                found[fact] = text
        place = [found.pop(fact, "") for fact in ("topic", "partition", "offset")]
        attempt = found.pop("attempt", "0")
        return ForeignDeadLetter(tool, "/".join(filter(None, place)), attempt=int(attempt), **found)
    return None


def _text(fact: str, value: bytes) -> str:
    """A value as text; "" where it can't be read. Spring's numbers are big-endian binary."""
    if fact in {"partition", "offset", "attempt"}:
        if value.isdigit() and len(value) <= 18:
            return str(int(value))
        binary = len(value) in {4, 8} and fact != "attempt"
        return str(int.from_bytes(value, signed=True)) if binary else ""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return ""
