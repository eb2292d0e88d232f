"""Where assigned partitions are read from: our decision, never the client's.

`auto.offset.reset` is `error`, so every position is explicit and comes from the same reply that
carries the commit's metadata. A group without a commit starts at `earliest` or `latest`, and
that position is committed at once. A commit below the log's start goes on at the start and says
how much retention took; one beyond its end belongs to a topic that was truncated or created
anew, and goes on at the start of what is there: late rather than lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.model import StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.errors import told

log = logging.getLogger("ackfloor.kafka")

Start = Literal["earliest", "latest"]
ATTEMPTS = 3
REQUEST_S = 10.0


def resolve(
    consumer: Consumer, partitions: Sequence[TopicPartition], start: Start
) -> list[StartPosition]:
    """The start position of each assigned partition.

    Raises:
        SourceFailed: the broker did not say within `ATTEMPTS` requests of `REQUEST_S` seconds.
    """
    return [_resolve(consumer, committed, start) for committed in _committed(consumer, partitions)]


def _committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found: list[TopicPartition] = consumer.committed(list(partitions), timeout=REQUEST_S)
        except KafkaException as exc:
            log.warning("committed positions, attempt %d: %s", attempt, told(exc))
            continue
        for partition in found:
            if partition.error is not None:
                raise SourceFailed(f"committed position of {partition}: {told(partition.error)}")
        return found
    raise SourceFailed(f"the committed positions could not be read in {ATTEMPTS} attempts")


def _resolve(consumer: Consumer, committed: TopicPartition, start: Start) -> StartPosition:
    topic, partition, position = committed.topic, committed.partition, committed.offset
    low, high = log_range(consumer, topic, partition)
    if position < 0:
        return StartPosition(topic, partition, low if start == "earliest" else high, False)
    if position < low:
        log.error(
            "%s/%d: retention removed %d records before they were read; going on at %d",
            topic,
            partition,
            low - position,
            low,
        )
        return StartPosition(topic, partition, low, False, "", low - position)
    if position > high:
        log.error(
            "%s/%d: the committed position %d is beyond the log's end %d: the topic was truncated "
            "or created anew; starting at %d",
            topic,
            partition,
            position,
            high,
            low,
        )
        return StartPosition(topic, partition, low, False)
    return StartPosition(topic, partition, position, True, committed.metadata or "")


def log_range(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first position and the end of a partition's log.

    Raises:
        SourceFailed: the broker did not say.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=REQUEST_S, cached=False
            )
        except KafkaException as exc:
            log.warning("log range of %s/%d, attempt %d: %s", topic, partition, attempt, told(exc))
            continue
        if found is not None:
            return found[0], found[1]
    raise SourceFailed(f"the log range of {topic}/{partition} could not be read")
