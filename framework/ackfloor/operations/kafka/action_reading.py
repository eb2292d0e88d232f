"""Reads the actions topic backwards, a piece at a time, so that the newest cost the same always."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from heapq import merge
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ackfloor.dead_letters.kafka.record_reading import (
    EOF,
    REQUEST_S,
    batches,
    offset_of,
    read_error,
    reading_consumer,
)
from ackfloor.dead_letters.kafka.redrive_topics import known_topics
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.operations.action_notes import TOPIC

#: Records that are read in a row.
PIECE: Final = 2_000
Stored = tuple[int, bytes | None]


def newest_first(
    options: KafkaOptions, since_ms: int | None = None
) -> Generator[Stored, None, None]:
    """The time (wall-clock ms) and value of each record, the newest first.

    Nothing where the topic does not exist.

    Args:
        since_ms: nothing is read before the first record of this time, in wall-clock ms; None for
            all. A record with an odd time among later ones ends nothing.

    Raises:
        KafkaUnreachable: no broker answers.
        RedriveRefused: the topic may not be read.
        ConfigError: a client property is refused.
    """
    _, partitions = known_topics(options)
    # Somebody else may have created it with more than one.
    logs = [_backwards(options, number, since_ms) for number in range(partitions.get(TOPIC, 0))]
    try:
        yield from merge(*logs, key=lambda each: -each[0])
    finally:
        for log in logs:
            log.close()


def _backwards(
    options: KafkaOptions, partition: int, since_ms: int | None
) -> Generator[Stored, None, None]:
    with closing(reading_consumer(options)) as consumer:
        place = TopicPartition(TOPIC, partition)
        try:
            low, end = consumer.get_watermark_offsets(place, timeout=REQUEST_S)
            if since_ms is not None:
                low = max(low, _first_since(consumer, partition, since_ms, end))
        except KafkaException as exc:
            raise read_error(exc.args[0], TOPIC) from exc
        while end > low:
            start = max(low, end - PIECE)
            for message in reversed(_piece(consumer, partition, start, end)):
                yield message.timestamp()[1], message.value()
            end = start


def _first_since(consumer: Consumer, partition: int, since_ms: int, end: int) -> int:
    """The offset of the first record of a time or later; the end where there is none."""
    wanted = TopicPartition(TOPIC, partition, max(0, since_ms))
    [found] = consumer.offsets_for_times([wanted], timeout=REQUEST_S)
    if found.error is not None:
        raise read_error(found.error, TOPIC)
    return found.offset if found.offset >= 0 else end


def _piece(consumer: Consumer, partition: int, start: int, end: int) -> list[Message]:
    """The records from one offset to before another, as far as they are there."""
    consumer.assign([TopicPartition(TOPIC, partition, start)])
    found: list[Message] = []
    arriving = batches(consumer, TOPIC)
    while True:
        for message in next(arriving):
            error = message.error()
            if error is not None and error.code() == EOF:
                return found
            if error is not None and not error.retriable():
                raise read_error(error, TOPIC)
            if error is None:
                if offset_of(message) < end:
                    found.append(message)
                if offset_of(message) >= end - 1:
                    return found
