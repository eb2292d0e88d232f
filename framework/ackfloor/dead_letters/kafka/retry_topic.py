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

    def waiting(self, place: str, group: str | None = None) -> DeadLetter:
        """The record of a source topic that waits in a retry topic; of several copies the newest.

        Args:
            place: its topic, partition and offset in the source: `orders/3/41927`.
            group: the consumer group whose retry topics may hold it; None for any.

        Raises:
            RedriveRefused: none holds it, or those of several groups do.
            KafkaUnreachable: the broker says nothing.
        """
        source = place.rsplit("/", 2)[0]
        tiers = [(name, t.group) for name, t in self.of_kind("retry", group) if t.topic == source]
        if not tiers:
            raise RedriveRefused(
                f"{source} is no retry topic, and has none{f' of group {group}' if group else ''}; "
                "`ackfloor retry ls` lists those"
            )
        found: dict[str, DeadLetter] = {}
        for name, owner in tiers:
            copies = [record for record in self.open(name) if record.origin == place]
            copies += [found[owner]] if owner in found else []
            if copies:
                found[owner] = max(copies, key=lambda copy: copy.timestamp_ms)
        if not found:
            raise RedriveRefused(
                f"{place} waits in none of {', '.join(name for name, _ in tiers)}; `ackfloor lanes "
                f"ls` shows what blocks its key where it is, `ackfloor dlq show {place}` whether "
                "it was given up"
            )
        if len(found) > 1:
            raise RedriveRefused(
                f"{place} waits in retry topics of the groups {', '.join(sorted(found))}; name one "
                "with --group"
            )
        return next(iter(found.values()))

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
