"""Reads dead letters from Kafka: byte for byte, by partition and offset, without a group.

Committed records only. Offsets that are asked for and don't come (removed by retention, never
written, or the marker of a transaction) are reported as gone, so that everything asked for is
accounted for. One partition is read after the other, and no more than a batch is in memory.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ackfloor.core.records.record import Headers
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Wanted
from ackfloor.errors import KafkaUnreachable, RedriveRefused
from ackfloor.kafka.client.client_errors import OUT_OF_RANGE, error_text
from ackfloor.kafka.client.client_options import KafkaOptions, quiet_consumer

REQUEST_S = 10.0
#: How long a reader waits for a broker that does not answer.
PATIENCE_S = 60.0
BATCH = 500
#: Unwanted records are skipped by reading up to so many in a row; beyond that it seeks.
READ_OVER = 2_000
EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED})
_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
)


class Gone(NamedTuple):
    """A dead letter that was asked for and is not in its topic."""

    partition: int
    offset: int


def reading_consumer(options: KafkaOptions, more: Mapping[str, Any] | None = None) -> Consumer:
    """A consumer that joins no group and reports partition ends; may raise ConfigError."""
    # It often reads to the end, which a broker reports only after this wait.
    ends = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    # The client wants the name of a group, and neither joins it nor commits to it.
    return quiet_consumer(options, "ackfloor-redrive", {**ends, **(more or {})})


class DeadLetterReader:
    """Reads one dead-letter topic.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self._topic = topic
        self._consumer = reading_consumer(options)

    def read(self, wanted: Wanted) -> Iterator[DeadLetter | Gone]:
        """The dead letters at these offsets (partition -> ascending offsets), in order.

        Raises:
            KafkaUnreachable: the broker says nothing for a minute.
            RedriveRefused: the topic may not be read.
        """
        for partition in sorted(wanted):
            if wanted[partition]:
                yield from self._partition(partition, wanted[partition])

    def all(
        self, partitions: Iterable[int], starts: Mapping[int, int] | None = None
    ) -> Iterator[DeadLetter]:
        """Every dead letter that was there when its partition was begun, partition by partition.

        Args:
            starts: partition -> the first offset to read; where the log begins later, from there.

        Raises:
            KafkaUnreachable, RedriveRefused: as `read` does.
        """
        for partition in partitions:
            low, _ = self._ends(TopicPartition(self._topic, partition))
            start = max(low, (starts or {}).get(partition, 0))
            self._consumer.assign([TopicPartition(self._topic, partition, start)])
            for message in self._messages(partition):
                if message is not None:
                    yield dead_letter_of(message)

    def _partition(self, partition: int, wanted: array[int]) -> Iterator[DeadLetter | Gone]:
        """The dead letters at these offsets of one partition; at least one is wanted."""
        low, end = self._ends(TopicPartition(self._topic, partition))
        first, behind = bisect_left(wanted, low), bisect_left(wanted, end)
        yield from (Gone(partition, offset) for offset in wanted[:first])
        if first < behind:
            yield from self._within(partition, wanted[first:behind])
        # The client can't seek beyond the end: it would be reset to the start.
        yield from (Gone(partition, offset) for offset in wanted[max(first, behind) :])

    def _within(self, partition: int, wanted: array[int]) -> Iterator[DeadLetter | Gone]:
        """The dead letters at these offsets, none of them outside the log."""
        n = 0
        self._consumer.assign([TopicPartition(self._topic, partition, wanted[n])])
        for message in self._messages(partition):
            # None: the end of the partition.
            at = None if message is None else offset_of(message)
            while n < len(wanted) and (at is None or wanted[n] < at):
                yield Gone(partition, wanted[n])
                n += 1
            if message is not None and n < len(wanted) and wanted[n] == at:
                yield dead_letter_of(message)
                n += 1
            if n == len(wanted):
                return
            if at is not None and wanted[n] - at > READ_OVER:
                self._consumer.seek(TopicPartition(self._topic, partition, wanted[n]))

    def _ends(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset of a log, and the one behind its last."""
        try:
            return self._consumer.get_watermark_offsets(place, timeout=REQUEST_S)
        except KafkaException as exc:
            raise read_error(exc.args[0], place.topic) from exc

    def _messages(self, partition: int) -> Iterator[Message | None]:
        """Records from where the partition is assigned, and None at its end."""
        for batch in batches(self._consumer, self._topic):
            for message in batch:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == EOF:
                    yield None
                    return
                elif error.code() in OUT_OF_RANGE:
                    # Retention has removed records since the first look.
                    low, _ = self._ends(TopicPartition(self._topic, partition))
                    self._consumer.assign([TopicPartition(self._topic, partition, low)])
                elif error.code() in _DENIED | _MISSING:
                    raise read_error(error, self._topic)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


def batches(consumer: Consumer, topic: str) -> Iterator[list[Message]]:
    """The next records again and again, also where none came; without end.

    Raises:
        KafkaUnreachable: the broker says nothing for a minute.
    """
    until_s = time.monotonic() + PATIENCE_S
    while True:
        batch = next_batch(consumer)
        if batch:
            until_s = time.monotonic() + PATIENCE_S
        elif time.monotonic() >= until_s:
            raise silent(topic)
        yield batch


def next_batch(consumer: Consumer) -> list[Message]:
    """The next records, at most `BATCH` + 1; none where none came for half a second."""
    # `consume` with a timeout waits for all of it unless every record has come.
    first = consumer.poll(0.5)
    batch = [] if first is None else [first, *consumer.consume(BATCH, 0)]
    # The client looks for its group's coordinator. No group is joined, so no right to it is needed.
    return [message for message in batch if not _is_of_group(message.error())]


def _is_of_group(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def offset_of(message: Message) -> int:
    """The offset of a record, which has one."""
    offset = message.offset()
    assert offset is not None
    return offset


def dead_letter_of(message: Message) -> DeadLetter:
    """A record as a dead letter."""
    try:
        headers: Headers | None = cast("Headers | None", message.headers()) or ()
    except SystemError:  # a name that is not UTF-8: the client can't hand any of them out
        headers = None
    return DeadLetter(
        message.topic() or "",
        message.partition() or 0,
        offset_of(message),
        _bytes(message.key()),
        _bytes(message.value()),
        headers,
        message.timestamp()[1],
    )


def _bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, bytes)
    return value


def silent(topic: str) -> KafkaUnreachable:
    """The error where nothing has come for too long."""
    return KafkaUnreachable(f"{topic} can't be read: no broker has answered for {PATIENCE_S:g} s")


def read_error(error: KafkaError, topic: str) -> KafkaUnreachable | RedriveRefused:
    """The error for a topic that can't be read."""
    if error.code() in _DENIED:
        return RedriveRefused(
            f"no permission to read {topic}: grant READ and DESCRIBE on it ({error_text(error)})"
        )
    if error.code() in _MISSING:
        return RedriveRefused(f"{topic} has no such partition, or is gone ({error_text(error)})")
    return KafkaUnreachable(f"{topic} can't be read: {error_text(error)}")
