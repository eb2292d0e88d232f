"""CopartitionedRetryTopics: retry topics that are read by whoever has the source's partition.

A group shares out all topics that its members subscribe to. Where partitions move one by one it
evens out their sum: a worker that joins gets the first half by name of what another one has,
which is all of the source, and leaves it with retry topics. So retry topics are not subscribed:
partition q of one belongs to whoever has partition q of its source, or q modulo its count where
the source has fewer. They come and go inside the same callbacks, and are committed by the same
member as before. All members go by the same counts, so each has one reader; but where there are
more of a retry topic than of its source, and the source grows, some have two for the seconds in
which not all members know it.

What a group does for what is subscribed has to be done elsewhere for these: to see that there are
more partitions, or none any more (`learn`), or topics that this worker does not know
(`new_retry_topics`), and to keep commits that don't change from expiring
(core/state/commit_schedule.py).

Invariant: what is read follows the partitions that are here, by the counts that are known, and all
that does is read but what the broker does not know. Whatever changes one of these says what to read
as well, and what no more.
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
    """What a member reads as well from now on, and what no more."""

    came: list[TopicPartition]
    gone: list[TopicPartition]


class CopartitionedRetryTopics:
    """What follows the partitions of one member.

    Args:
        sources: follower -> the topic that it follows.
        counts: how many partitions each of both had at the start, as far as is known.
    """

    def __init__(self, sources: Mapping[str, str], counts: Mapping[str, int]) -> None:
        self._sources = sources
        self._counts = {
            topic: counts.get(topic, 0) for topic in {*sources.keys(), *sources.values()}
        }
        #: Followers that are not known or could not be begun, and since when (monotonic seconds).
        self._missed: dict[str, float] = {}
        #: The partitions that this member has, and those that it reads with them.
        self._here: set[Place] = set()
        self._read: set[Place] = set()

    def __contains__(self, topic: object) -> bool:
        return topic in self._sources

    @property
    def topics(self) -> Collection[str]:
        """All that follow."""
        return self._sources.keys()

    def behind(self, topics: Collection[str]) -> set[str]:
        """The followers of these topics."""
        return {retry_topic for retry_topic, source in self._sources.items() if source in topics}

    def learn(self, described: Mapping[str, Described]) -> set[str]:
        """Note how many partitions topics have; returns which have more than before.

        Never fewer, but none where the broker says some seconds later again that there is no such
        retry_topic: it may not have heard of it. What is not read yet is not begun meanwhile.
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
        """Whether there is no such follower any more, although its source is there."""
        return topic in self._sources and self._counts[topic] == 0

    def come(self, partitions: Iterable[TopicPartition]) -> Changes:
        """Partitions have come."""
        self._here.update(_places(partitions))
        return self.changed()

    def go(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions go; returns what goes with them."""
        self._here.difference_update(_places(partitions))
        gone = self._read - self._following()
        self._read -= gone
        return _listed(gone)

    def miss(self, partitions: Iterable[TopicPartition]) -> None:
        """These could not be begun: not before the broker knows their topics (again)."""
        for topic, number in _places(partitions):
            self._missed.setdefault(topic, time.monotonic())
            self._read.discard((topic, number))

    def changed(self) -> Changes:
        """What to read as well, and what no more, by what was learned since."""
        following = self._following()
        came = {place for place in following - self._read if place[0] not in self._missed}
        gone = self._read - following
        self._read = (self._read - gone) | came
        return Changes(_listed(came), _listed(gone))

    def _following(self) -> set[Place]:
        found: set[Place] = set()
        return found.union(*map(self._behind, self._here))

    def _behind(self, place: Place) -> set[Place]:
        source, number = place
        count = self._counts.get(source, 0)
        return {
            (retry_topic, other)
            for retry_topic in self.behind({source})
            for other in range(number, self._counts[retry_topic], max(1, count))
            # Where the broker has not told yet how many the source has, its own number is sure.
            if other == number or count > number
        }


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(partition.topic, partition.partition) for partition in partitions]


def _listed(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in sorted(places)]
