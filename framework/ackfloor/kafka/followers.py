"""Followers: retry topics that are read by whoever has the source's partition.

A group shares out all topics that its members subscribe to. Where partitions move one by one it
evens out their sum: a worker that joins gets the first half by name of what another one has,
which is all of the source, and leaves it with retry topics. So retry topics are not subscribed:
partition q of one belongs to whoever has partition q of its source, or q modulo its count where
the source has fewer. All members go by the same counts, so each has one reader. They come and go
inside the same callbacks, and are committed by the same member as before.

What a group does for what is subscribed has to be done elsewhere for these: to see that partitions
were added (`learn`, `changed`), and to keep commits that don't change from expiring
(core/commits.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import TopicPartition

from ackfloor.kafka.topic_ids import Described

Place = tuple[str, int]


class Followers:
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
        #: Each partition of a source that this member has, and what follows it.
        self._following: dict[Place, set[Place]] = {}

    def __contains__(self, topic: object) -> bool:
        return topic in self._sources

    def behind(self, topics: Collection[str]) -> set[str]:
        """The followers of these topics."""
        return {follower for follower, source in self._sources.items() if source in topics}

    def learn(self, described: Mapping[str, Described]) -> set[str]:
        """Note how many partitions topics have, never fewer; returns which have more now."""
        more = {
            topic
            for topic, found in described.items()
            if topic in self._counts and len(found.partitions) > self._counts[topic]
        }
        self._counts.update({topic: len(described[topic].partitions) for topic in more})
        return more

    def come(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions have come; returns what follows them."""
        came: set[Place] = set()
        for place in _places(partitions):
            self._following[place] = self._behind(place)
            came |= self._following[place]
        return _listed(came)

    def go(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions go; returns what goes with them."""
        gone = [self._following.pop(place, set()) for place in _places(partitions)]
        return _listed(set().union(*gone))

    def changed(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What this member has to read as well, and no more, by what was learned since."""
        before: set[Place] = set().union(*self._following.values())
        self._following = {place: self._behind(place) for place in self._following}
        now: set[Place] = set().union(*self._following.values())
        return _listed(now - before), _listed(before - now)

    def _behind(self, place: Place) -> set[Place]:
        source, number = place
        count = self._counts.get(source, 0)
        return {
            (follower, other)
            for follower in self.behind({source})
            for other in range(number, self._counts[follower], max(1, count))
            # Where the broker has not told yet how many the source has, its own number is sure.
            if other == number or count > number
        }


def _places(partitions: Iterable[TopicPartition]) -> list[Place]:
    return [(partition.topic, partition.partition) for partition in partitions]


def _listed(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in sorted(places)]
