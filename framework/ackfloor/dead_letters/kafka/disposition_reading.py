"""The dispositions of one dead-letter topic, read to their end.

Only committed records count. All dispositions are written in transactions of one transactional id.
A job that has just taken that id therefore reads all of them, and no other job adds any: see
`dead_letters/kafka/redrive_job.py`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from ackfloor.dead_letters.kafka.record_reading import (
    EOF,
    batches,
    offset_of,
    read_error,
    reading_consumer,
    silent,
)
from ackfloor.kafka.client.client_errors import kafka_error
from ackfloor.kafka.client.client_options import KafkaOptions


class NotesRecords(Protocol):
    """What is told each record of a dispositions topic, in order."""

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Note one record."""
        ...


class DispositionsLog:
    """Reads a dispositions topic, from where it stopped the last time."""

    def __init__(self, options: KafkaOptions, topic: str, partitions: int) -> None:
        self._options = options
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), OFFSET_BEGINNING)

    def read_on(self, disposed: NotesRecords) -> None:
        """Read everything up to the end; each record is noted.

        Raises:
            KafkaUnreachable: the broker says nothing for a minute.
            RedriveRefused: the topic may not be read.
            ConfigError: a property is refused.
        """
        # A new client each time: it reports a partition's end once after it has begun.
        with closing(reading_consumer(self._options)) as consumer:
            try:
                self._read(consumer, disposed)
            except KafkaException as exc:
                error = kafka_error(exc)
                raise (
                    silent(self._topic) if error is None else read_error(error, self._topic)
                ) from exc

    def _read(self, consumer: Consumer, disposed: NotesRecords) -> None:
        consumer.assign([TopicPartition(self._topic, p, at) for p, at in self._next.items()])
        reading = set(self._next)
        arriving = batches(consumer, self._topic)
        while reading:
            for message in next(arriving):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    key, value = message.key(), message.value()
                    assert not isinstance(key, str)
                    assert not isinstance(value, str)
                    disposed.note(key, value)
                    self._next[partition] = offset_of(message) + 1
                elif error.code() == EOF:
                    reading.discard(partition)
                elif not error.retriable():
                    raise KafkaException(error)
