"""Reads every record of the receipts, the retry topics and the DLQ back from Kafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, TopicPartition

from ackfloor.core.records.envelope import PREFIX, read_envelope
from ackfloor_handlers.demo.account.facts import Origin, Parked, Place, Receipt
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_topics import DLQ, SOURCE, Topics, client_settings
from ackfloor_handlers.orders import RECEIPTS
from ackfloor_handlers.orders import Receipt as ReceiptValue

_PATIENCE_S = 20.0


@dataclass(slots=True)
class Collected:
    """The topics' records after everything was settled.

    Attributes:
        records: how many records each retry and dead-letter topic holds.
    """

    receipts: list[Receipt] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    dead: list[Parked] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)


def collect(bootstrap_servers: str, topics: Topics) -> Collected:
    """Read everything the run wrote.

    Raises:
        DemoFailed: a partition could not be read to its end.
    """
    ends = topics.ends(place for place in topics.places() if place[0] != SOURCE)
    found = Collected()
    for message in _messages(bootstrap_servers, ends):
        topic = message.topic()
        if topic == RECEIPTS:
            found.receipts.append(_receipt(message))
            continue
        assert topic is not None
        found.records[topic] += 1
        (found.dead if topic == DLQ else found.parked).append(_parked(message))
    return found


def _messages(bootstrap_servers: str, ends: dict[Place, int]) -> Iterator[Message]:
    left = {place for place, end in ends.items() if end > 0}
    settings = {
        **client_settings(bootstrap_servers),
        "group.id": "ackfloor-demo-collect",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(*place, 0) for place in sorted(left)])
        give_up = time.monotonic() + _PATIENCE_S
        while left:
            batch = consumer.consume(2_000, 0.2)
            if batch:
                give_up = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > give_up:
                raise DemoFailed(f"could not read to the end of {_names(left)}")
            yield from _read(batch, left)
    finally:
        consumer.close()


def _read(batch: Iterable[Message], left: set[Place]) -> Iterator[Message]:
    """The records of a batch; removes partitions at their end from `left`."""
    for message in batch:
        error = message.error()
        if error is None:
            yield message
            continue
        topic, partition = message.topic(), message.partition()
        # Anything else is transient: the client retries, and the caller has a time limit.
        if error.name() == "_PARTITION_EOF" and topic is not None and partition is not None:
            left.discard((topic, partition))


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}/{partition}" for topic, partition in sorted(places))


def _receipt(message: Message) -> Receipt:
    value = ReceiptValue.model_validate_json(message.value() or b"")
    return Receipt(
        order=value.order,
        origin=Origin(value.origin.partition, value.origin.offset),
        attempt=value.attempt,
        topic=value.delivered.topic,
        partition=value.delivered.partition,
        offset=value.delivered.offset,
        started_ms=value.started_ms,
        due_ms=value.due_ms,
    )


def _parked(message: Message) -> Parked:
    headers: Any = message.headers() or []
    envelope = read_envelope(headers)
    partition, offset = envelope.origin_partition, envelope.origin_offset
    named = envelope.origin_topic == SOURCE and partition is not None and offset is not None
    kind, appended_ms = message.timestamp()
    topic = message.topic()
    assert topic is not None
    return Parked(
        topic=topic,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        origin=Origin(partition or 0, offset or 0) if named else None,
        envelope=envelope,
        key=message.key(),
        value=message.value(),
        headers=tuple(header for header in headers if not header[0].startswith(PREFIX)),
        appended_ms=appended_ms,
        by_broker=kind == TIMESTAMP_LOG_APPEND_TIME,
    )
