"""Where assigned partitions are read from: our decision, never the client's.

`auto.offset.reset` is `error`, so every position is explicit and comes from the same reply that
carries the commit's metadata. A group without a commit starts at `earliest` or `latest`, and
that position is committed at once. A commit below the log's start goes on at the start and says
how much retention took. Whether one is beyond the log's end only the fetch can tell, because the
end that is told here stops at the first open transaction; see `Membership.restart`.
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
    until_s = time.monotonic() + PATIENCE_S
    committed = _committed(consumer, partitions, until_s)
    return [_resolve(consumer, partition, start, until_s) for partition in committed]


def _committed(
    consumer: Consumer, partitions: Sequence[TopicPartition], until_s: float
) -> list[TopicPartition]:
    found: list[TopicPartition] = ask(
        "the committed positions",
        lambda: consumer.committed(list(partitions), timeout=REQUEST_S),
        until_s,
    )
    for partition in found:
        if partition.error is not None:
            raise SourceFailed(f"committed position of {partition}: {told(partition.error)}")
    return found


def committed_floor(consumer: Consumer, partition: TopicPartition, otherwise: int) -> int:
    """What the group has committed of one partition, `otherwise` where it has nothing."""
    [found] = _committed(consumer, [partition], time.monotonic() + PATIENCE_S)
    return found.offset if found.offset >= 0 else otherwise


def ask(what: str, question: Callable[[], T | None], until_s: float) -> T:
    """Repeat a question to the broker until it is answered; None is no answer.

    Raises:
        SourceFailed: the time `until_s` (monotonic seconds) is over.
    """
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


def _resolve(
    consumer: Consumer, committed: TopicPartition, start: Start, until_s: float
) -> StartPosition:
    topic, partition, position = committed.topic, committed.partition, committed.offset
    low, high = log_range(consumer, topic, partition, until_s)
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
    return StartPosition(topic, partition, position, True, committed.metadata or "")


def log_range(
    consumer: Consumer, topic: str, partition: int, until_s: float | None = None
) -> tuple[int, int]:
    """The first position and the end of a partition's log.

    The end is that of finished transactions: it can lie below a position that another client of
    the group, one that reads uncommitted records, has committed.

    Raises:
        SourceFailed: the broker did not say.
    """
    return ask(
        f"the log range of {topic}/{partition}",
        lambda: consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=REQUEST_S, cached=False
        ),
        time.monotonic() + PATIENCE_S if until_s is None else until_s,
    )
