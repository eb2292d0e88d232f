"""CopartitionedRetryTopics: retry topics are read by the member that has the source's partition.

A group distributes all topics that its members subscribe to. Under cooperative rebalancing it
balances only the sum of partitions: a worker that joins gets the first half by name of another
one's partitions, which is all of the source, and leaves it with retry topics. So members do not
subscribe to retry topics: partition q of one belongs to the member that has partition q of its
source, or q modulo the source's count if the source has fewer. They are assigned and revoked in the
same callbacks, and committed by the same member. All members use the same counts, so each partition
has one reader; only if a retry topic has more partitions than its source, and the source grows,
some have two for the seconds until all members know.

What the group does for subscribed topics is done here: noticing more partitions or a deleted topic
(`learn`). `new_retry_topics` notices topics that this worker does not know, and
core/state/commit_schedule.py keeps unchanged commits from expiring.

Invariant: the partitions read are those that belong to the source partitions this member has, by
the known counts, without those that the broker does not know. Each method that changes one of these
returns which partitions to begin and to stop reading.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import TopicPartition

from ackfloor.kafka.topics import topic_ids
from ackfloor.kafka.topics.topic_ids import Described

Place = tuple[str, int]


class Changes(NamedTuple):
    """The partitions that a member begins to read, and those it stops reading."""

    came: list[TopicPartition]
    gone: list[TopicPartition]


class CopartitionedRetryTopics:
    """The co-partitioned retry topics of one member.

    Args:
        sources: retry topic -> its source topic.
        counts: topic -> number of partitions at the start, as far as it is known.
    """

    def __init__(self, sources: Mapping[str, str], counts: Mapping[str, int]) -> None:
        self._sources = sources
        self._counts = {
            topic: counts.get(topic, 0) for topic in {*sources.keys(), *sources.values()}
        }
        #: Retry topics that are unknown or have no start, and since when (monotonic seconds).
        self._missed: dict[str, float] = {}
        #: The source partitions that this member has, and the retry partitions that it reads.
        self._here: set[Place] = set()
        self._read: set[Place] = set()

    def __contains__(self, topic: object) -> bool:
        return topic in self._sources

    @property
    def topics(self) -> Collection[str]:
        """All retry topics that are read this way."""
        return self._sources.keys()

    def behind(self, topics: Collection[str]) -> set[str]:
        """The retry topics of these source topics."""
        return {retry_topic for retry_topic, source in self._sources.items() if source in topics}

    def learn(self, described: Mapping[str, Described]) -> set[str]:
        """Note how many partitions topics have; returns those that have more than before.

        A count never falls, except to 0 once the broker has said twice, seconds apart, that there
        is no such retry topic: the first answer may come from a broker that does not know the
        topic yet. Partitions that are not read yet are not begun meanwhile.
        """
        more = {
            topic
            for topic, found in described.items()
            if topic in self._counts and len(found.partitions) > self._counts[topic]
        }
        self._counts.update({topic: len(described[topic].partitions) for topic in more})
        now_s = time.monotonic()
        for topic in described.keys() & self._sources.keys():
            if described[topic].partitions:
                self._missed.pop(topic, None)
            elif (
                described[topic].absent
                and now_s - self._missed.setdefault(topic, now_s) >= topic_ids.LOOK_EVERY_S
            ):
                self._counts[topic] = 0
        return more

    def deleted(self, topic: str) -> bool:
        """Whether this retry topic was deleted although its source exists."""
        return topic in self._sources and self._counts[topic] == 0

    def unknown(self, source: str) -> set[str]:
        """The retry topics of a source that the broker did not know when it was asked last."""
        return {t for t in self.behind({source}) if t in self._missed or not self._counts[t]}

    def come(self, partitions: Iterable[TopicPartition]) -> Changes:
        """Source partitions were assigned."""
        self._here.update(places_of(partitions))
        return self.changed()

    def go(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Source partitions were taken away; returns the retry partitions that go with them."""
        self._here.difference_update(places_of(partitions))
        gone = self._read - self.followed()
        self._read -= gone
        return _listed(gone)

    def miss(self, partitions: Iterable[TopicPartition]) -> None:
        """These have no start position: they are not read before the broker knows their topics."""
        for topic, number in places_of(partitions):
            self._missed.setdefault(topic, time.monotonic())
            self._read.discard((topic, number))

    def changed(self) -> Changes:
        """The partitions to begin and to stop reading after what was learned since."""
        following = self.followed()
        came = {place for place in following - self._read if place[0] not in self._missed}
        gone = self._read - following
        self._read = (self._read - gone) | came
        return Changes(_listed(came), _listed(gone))

    def followed(self) -> set[Place]:
        """The retry partitions that belong to the source partitions here, read or not."""
        found: set[Place] = set()
        return found.union(*map(self._behind, self._here))

    def _behind(self, place: Place) -> set[Place]:
        source, number = place
        count = self._counts.get(source, 0)
        return {
            (retry_topic, other)
            for retry_topic in self.behind({source})
            for other in range(number, self._counts[retry_topic], max(1, count))
            # While the source's count is unknown, only the same partition number is certain.
            if other == number or count > number
        }


def places_of(partitions: Iterable[TopicPartition]) -> list[Place]:
    """The client's partitions as places."""
    return [(partition.topic, partition.partition) for partition in partitions]


def _listed(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in sorted(places)]
