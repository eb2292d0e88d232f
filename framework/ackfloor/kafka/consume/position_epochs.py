"""PositionEpochs: the leader epoch at the position from which a partition is read.

An unclean election cuts records off a log, and others take their place. A client notices that when
it knows the epoch of its position (KIP-320): it asks the leader where that epoch ends. It knows the
epoch of what it has fetched; but a seek makes it forget, and a paused partition goes on with one.
Meanwhile the log may be cut and grow beyond the position, and then nothing else tells.

An epoch does as well for a lower position: where the log is whole, it ends above that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import TopicPartition

from ackfloor.kafka.topics.log_ranges import Place


class PositionEpochs:
    """The epochs of the partitions that one consumer reads.

    Args:
        position: returns the client's own next positions; none before its first record since it
            was told where to go on.
    """

    def __init__(self, position: Callable[[list[TopicPartition]], list[TopicPartition]]) -> None:
        self._position = position
        #: A position of each partition, and the epoch there.
        self._known: dict[Place, tuple[int, int]] = {}

    def began(self, place: Place, position: int, epoch: int) -> None:
        """A partition is read from a position on, at which the log is of this epoch."""
        if epoch >= 0:
            self._known[place] = position, epoch

    def with_epoch(self, target: TopicPartition) -> TopicPartition:
        """A position to go on at, with its epoch where that is known."""
        place = target.topic, target.partition
        for found in self._position([target]):
            epoch: Any = found.leader_epoch  # None where it has none, whatever the hints say
            if found.offset >= 0 and epoch is not None:
                self.began(place, found.offset, epoch)
        position, known = self._known.get(place, (-1, -1))
        if target.offset > position:
            return target
        return TopicPartition(*place, target.offset, leader_epoch=known)

    def forget(self, places: Iterable[Place]) -> None:
        """Partitions were taken away, or are read anew."""
        for place in places:
            self._known.pop(place, None)
