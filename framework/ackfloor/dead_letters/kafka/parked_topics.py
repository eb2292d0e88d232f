"""ParkedTopics: reads records of retry and dead-letter topics by partition and offset."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing

from ackfloor.core.parking.topic_names import ParsedTopic, parse_topic
from ackfloor.core.values.suggestions import there_are
from ackfloor.dead_letters.kafka.record_reading import DeadLetterReader, Gone
from ackfloor.dead_letters.kafka.redrive_topics import described, known_topics
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter, Wanted
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.topics.topic_ids import printed


class ParkedTopics:
    """The topics of a cluster.

    Raises:
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self.admin, self.partitions = known_topics(options)

    def of_kind(self, kind: str, group: str | None) -> list[tuple[str, ParsedTopic]]:
        """Our topics of a kind by name, of one consumer group or of all.

        Raises:
            RedriveRefused: the group has no topic of ours, of whatever kind.
        """
        named = ((name, parse_topic(name)) for name in sorted(self.partitions))
        ours = [(name, parsed) for name, parsed in named if parsed is not None]
        groups = {parsed.group for _, parsed in ours}
        if group is not None and group not in groups:
            raise RedriveRefused(
                f"group {group!r} has no retry or dead-letter topics here: of groups that have, "
                f"{there_are(group, groups)}"
            )
        return [
            (name, parsed)
            for name, parsed in ours
            if parsed.kind == kind and group in {None, parsed.group}
        ]

    def count(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            RedriveRefused: there is no such topic.
        """
        if topic not in self.partitions:
            raise RedriveRefused(f"{topic} does not exist, or this user may not see it")
        return self.partitions[topic]

    def id_of(self, topic: str) -> str:
        """Kafka's id of a topic: another one where it was deleted and created anew.

        Raises:
            RedriveRefused: there is no such topic, or it may not be seen.
            KafkaUnreachable: the broker says nothing.
        """
        self.count(topic)
        return printed(described(self.admin, [topic])[topic].topic_id)

    def check(self, topic: str, partitions: Iterable[int]) -> None:
        """Check that a topic has these partitions.

        Raises:
            RedriveRefused: there is no such topic or partition.
        """
        count = self.count(topic)
        for partition in partitions:
            if partition >= count:
                raise RedriveRefused(
                    f"{topic} has no partition {partition}: it has {count}, from 0"
                )

    def records(self, topic: str, wanted: Wanted) -> Iterator[DeadLetter | Gone]:
        """The records at these places, in order; those that are not there as `Gone`.

        Raises:
            RedriveRefused: there is no such topic or partition, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self.check(topic, wanted)
        with closing(DeadLetterReader(self._options, topic)) as reader:
            yield from reader.read(wanted)

    def record(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """One record.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        [found] = self.records(topic, {partition: array("q", [offset])})
        if isinstance(found, Gone):
            raise not_there(topic, found)
        return found


def not_there(topic: str, place: Gone) -> RedriveRefused:
    """The error for a place that is not in the log."""
    return RedriveRefused(
        f"{topic}/{place.partition}/{place.offset} is not there: removed by retention, or never "
        "written"
    )
