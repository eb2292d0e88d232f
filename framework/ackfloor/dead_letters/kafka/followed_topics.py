"""FollowedTopics: a cluster's dead-letter and retry topics, read on from where a reader stands.

For whoever keeps what they say, such as an index: what was read before is not read again. Only
committed records are handed out. A position may lie behind the last record: transactions leave
markers, which take offsets and are no records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicCollection, TopicPartition

from ackfloor.core.parking.topic_names import Kind, ParsedTopic, parse_topic
from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.record_reading import (
    EOF,
    batches,
    dead_letter_of,
    offset_of,
    read_error,
    reading_consumer,
)
from ackfloor.dead_letters.kafka.redrive_topics import described
from ackfloor.dead_letters.rules.dispositions import Disposed, dispositions_topic_of
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import OUT_OF_RANGE
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.topics.log_ranges import log_ranges
from ackfloor.kafka.topics.topic_ids import answer, printed

REQUEST_S = 10.0
#: The range of a partition whose broker did not answer.
_UNKNOWN = (-1, -1)


@dataclass(frozen=True, slots=True)
class FollowedTopic:
    """One dead-letter or retry topic of ours, as it is now.

    Attributes:
        kind: "dlq" or "retry".
        topic_id: Kafka's; another one where it was deleted and created anew.
        ranges: partition -> its first offset, and the one behind its last committed record;
            without partitions whose broker did not answer.
        late: those partitions.
        source: the topic that its records come from.
        source_id: Kafka's id of that, as it is now; "" where it is not known.
    """

    name: str
    group: str
    topic_id: str
    ranges: Mapping[int, tuple[int, int]]
    kind: Kind = "dlq"
    late: Sequence[int] = ()
    source: str = ""
    source_id: str = ""


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What was read at once.

    Attributes:
        records: dead letters, or what was parked.
        positions: partition -> the offset to read next.
    """

    records: Sequence[DeadLetter]
    positions: Mapping[int, int]


class FollowedTopics:
    """The dead-letter and retry topics that this user may see.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._connection = AdminConnection(options)
        #: Name and id of a topic -> what reads its dispositions, and their ends at its last read.
        self._logs: dict[tuple[str, str], DispositionsLog] = {}
        self._read: dict[tuple[str, str], Mapping[int, int]] = {}
        #: Dispositions topic -> partition -> its end at the last look.
        self._ends: dict[str, dict[int, int]] = {}

    def look(self) -> tuple[str, Sequence[FollowedTopic]]:
        """The cluster's id, its dead-letter topics by name, and then its retry topics.

        Raises:
            KafkaUnreachable: no broker answers.
            RedriveRefused: a topic can't be described.
        """
        metadata = self._connection.metadata()
        ours = _followed(metadata.topics)
        dlqs = [name for name, parsed in ours.items() if parsed.kind == "dlq"]
        logs = {dispositions_topic_of(name) for name in dlqs} & metadata.topics.keys()
        admin = self._connection.admin
        ids = described(admin, list(ours)) if ours else {}
        ranges: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in (*ours, *logs)}
        places = [(name, part) for name in ranges for part in metadata.topics[name].partitions]
        for (name, part), found in log_ranges(admin, places, REQUEST_S).items():
            ranges[name][part] = found
        sources = self._ids({each.topic for each in ours.values()} & metadata.topics.keys())
        topics = [
            FollowedTopic(
                name,
                parsed.group,
                printed(ids[name].topic_id),
                ranges[name],
                parsed.kind,
                late=sorted(metadata.topics[name].partitions.keys() - ranges[name].keys()),
                source=parsed.topic,
                source_id=sources.get(parsed.topic, ""),
            )
            for name, parsed in ours.items()
        ]
        self._ends = {
            name: {
                part: ranges[name].get(part, _UNKNOWN)[1]
                for part in metadata.topics[name].partitions
            }
            for name in logs
        }
        return str(metadata.cluster_id), topics

    def _ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Topic -> its id, "" where the broker does not say."""
        if not topics:
            return {}
        asked: Mapping[str, Future[Any]] = self._connection.admin.describe_topics(
            TopicCollection(sorted(topics)), request_timeout=REQUEST_S
        )
        return {topic: answer(topic, each, REQUEST_S).topic_id for topic, each in asked.items()}

    def note_disposed(self, topic: FollowedTopic, disposed: Disposed) -> None:
        """Note the dispositions of a topic that were written since the last call.

        Raises:
            KafkaUnreachable: the broker says nothing for a minute.
            RedriveRefused: they may not be read.
        """
        name = dispositions_topic_of(topic.name)
        ends, key = self._ends.get(name), (topic.name, topic.topic_id)
        # Reading takes a client of its own, so nothing is read where nothing was written.
        if ends is None or (ends == self._read.get(key) and _UNKNOWN[1] not in ends.values()):
            return
        if key not in self._logs:
            self._logs[key] = DispositionsLog(self._options, name, len(ends))
        self._logs[key].read_on(disposed)
        self._read[key] = ends

    def read_on(self, topic: FollowedTopic, positions: Mapping[int, int]) -> Iterator[NewRecords]:
        """What a topic has from these positions on, partitions mixed, up to its end.

        Args:
            positions: partition -> offset, of the partitions to read.

        Raises:
            KafkaUnreachable: the broker says nothing for a minute.
            RedriveRefused: the topic may not be read.
        """
        if not positions:
            return
        reading = set(positions)
        with closing(reading_consumer(self._options)) as consumer:
            consumer.assign([TopicPartition(topic.name, p, at) for p, at in positions.items()])
            arriving = batches(consumer, topic.name)
            while reading:
                records, behind = [], dict[int, int]()
                for message in next(arriving):
                    partition, error = message.partition() or 0, message.error()
                    if error is None:
                        records.append(dead_letter_of(message))
                        behind[partition] = offset_of(message) + 1
                    elif error.code() == EOF:
                        behind[partition] = offset_of(message)
                        reading.discard(partition)
                    elif error.code() in OUT_OF_RANGE:
                        # Retention has removed what was to be read: the next look says from where.
                        reading.discard(partition)
                    elif not error.retriable():
                        raise read_error(error, topic.name)
                if behind:
                    yield NewRecords(records, behind)


def _followed(topics: Iterable[str]) -> dict[str, ParsedTopic]:
    """Those of ours that are followed, dead-letter topics first."""
    ours = {name: parsed for name in topics if (parsed := parse_topic(name)) is not None}
    return {
        name: ours[name]
        for kind in ("dlq", "retry")
        for name in sorted(ours)
        if ours[name].kind == kind
    }
