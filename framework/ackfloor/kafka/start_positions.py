"""Where assigned partitions are read from: our decision, never the client's.

`auto.offset.reset` is `error`, so every position is explicit and comes from the same reply that
carries the commit's metadata. A group without a commit starts at `earliest` or `latest`, and
that position is committed at once. A commit below the log's start goes on at the start and says
how much retention took; one beyond its end belongs to a topic that was truncated or created
anew, and goes on at the start of what is there: late rather than lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.model import StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.errors import told

log = logging.getLogger("ackfloor.kafka")

Start = Literal["earliest", "latest"]
#: How long one question may be repeated. A topic that was just created has no leader yet, and
#: a coordinator that moves is away for seconds; a worker that gives up starts again from here.
PATIENCE_S = 30.0
REQUEST_S = 10.0
PAUSE_S = 0.2

T = TypeVar("T")


def resolve(
    consumer: Consumer, partitions: Sequence[TopicPartition], start: Start
) -> list[StartPosition]:
    """The start position of each assigned partition.

    Raises:
        SourceFailed: the broker did not say within `PATIENCE_S` seconds.
    """
    committed: list[TopicPartition] = _ask(
        "the committed positions", lambda: consumer.committed(list(partitions), timeout=REQUEST_S)
    )
    for partition in committed:
        if partition.error is not None:
            raise SourceFailed(f"committed position of {partition}: {told(partition.error)}")
    return [_resolve(consumer, partition, start) for partition in committed]


def _ask(what: str, question: Callable[[], T | None]) -> T:
    """Repeat a question to the broker until it is answered."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            answer = question()
        except KafkaException as exc:
            why = told(exc)
            log.debug("%s: %s", what, why)
        else:
            if answer is not None:
                return answer
            why = "no answer"
        if time.monotonic() >= until_s:
            raise SourceFailed(f"{what} could not be read within {PATIENCE_S:g} s: {why}")
        time.sleep(PAUSE_S)


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
    return _ask(
        f"the log range of {topic}/{partition}",
        lambda: consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=REQUEST_S, cached=False
        ),
    )
