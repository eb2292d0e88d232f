"""Retry topics as an onlooker meets them: the records that their group has not settled.

What the group has committed says which those are, its gap sets included. A worker commits about
once a second, so what it has settled since is still among them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ackfloor.core.redrive import DeadLetter
from ackfloor.core.settled import Settled
from ackfloor.core.topics import ParsedTopic, parse_topic
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.dead_letters import DeadLetterReader, Gone
from ackfloor.kafka.options import KafkaOptions
from ackfloor.kafka.redrive_topics import known_topics
from ackfloor.kafka.settled import settled


class TierBoxes:
    """The retry topics of a cluster.

    Raises:
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        _, self._partitions = known_topics(options)

    def names(self, group: str | None = None) -> list[str]:
        """Retry topics, of one consumer group or of all; the shortest delay of a source first."""
        found = []
        for name in self._partitions:
            tier = parse_topic(name)
            if tier is not None and tier.kind == "retry" and group in {None, tier.group}:
                found.append((tier.topic, tier.group, tier.delay_s or 0.0, name))
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
        reader = DeadLetterReader(self._options, topic)
        try:
            for record in reader.all(self._partitions[topic], starts):
                if not _is_settled(record.offset, commits.get(record.partition)):
                    yield record
        finally:
            reader.close()

    def record(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """One record, settled or not.

        Raises:
            RedriveRefused: it is not there, or may not be read.
            KafkaUnreachable: the broker says nothing.
        """
        self._tier(topic)
        if partition >= (count := self._partitions[topic]):
            raise RedriveRefused(f"{topic} has no partition {partition}: it has {count}, from 0")
        reader = DeadLetterReader(self._options, topic)
        try:
            found = next(reader.read({partition: array("q", [offset])}))
        finally:
            reader.close()
        if isinstance(found, Gone):
            raise RedriveRefused(
                f"{topic}/{partition}/{offset} is not there: removed by retention, or never written"
            )
        return found

    def _tier(self, topic: str) -> ParsedTopic:
        if topic not in self._partitions:
            raise RedriveRefused(f"{topic} does not exist, or this user may not see it")
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
