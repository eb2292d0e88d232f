"""Retry topics read from outside the group: the records that it has not settled.

The group's commits say which those are, gap sets included. A worker commits about
once a second, so what it has settled since is still among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ackfloor.core.acks.settled import Settled
from ackfloor.core.parking.topic_names import ParsedTopic, parse_topic
from ackfloor.dead_letters.kafka.parked_topics import ParkedTopics
from ackfloor.dead_letters.kafka.record_reading import DeadLetterReader
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.groups.group_commits import settled


class RetryTopics(ParkedTopics):
    """The retry topics of a cluster."""

    def names(self, group: str | None = None) -> list[str]:
        """Retry topics, of one consumer group or of all; the shortest delay of a source first.

        Raises:
            RedriveRefused: the group has no topics.
        """
        found = [
            (tier.topic, tier.group, tier.delay_s or 0.0, name)
            for name, tier in self.of_kind("retry", group)
        ]
        return [name for *_, name in sorted(found)]

    def open(self, topic: str) -> Iterator[DeadLetter]:
        """The records of a retry topic that its group has not settled, by partition and offset.

        Raises:
            RedriveRefused: there is no such topic, or it may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        tier = self._tier(topic)
        commits = {each.partition: each for each in settled(self._options, tier.group, [topic])}
        starts = {partition: each.position for partition, each in commits.items()}
        with closing(DeadLetterReader(self._options, topic)) as reader:
            for record in reader.all(range(self.count(topic)), starts):
                if not _is_settled(record.offset, commits.get(record.partition)):
                    yield record

    def record(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """One record, settled or not.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self._tier(topic)
        return super().record(topic, partition, offset)

    def _tier(self, topic: str) -> ParsedTopic:
        self.count(topic)
        tier = parse_topic(topic)
        if tier is None or tier.kind != "retry":
            raise RedriveRefused(
                f"{topic} is no retry topic of ackfloor; `ackfloor retry ls` lists those"
            )
        return tier


def _is_settled(offset: int, commit: Settled | None) -> bool:
    if commit is None:
        return False
    return offset < commit.position or any(start <= offset < end for start, end in commit.runs)
