"""MemoryBroadcastSource: every partition of the topics, read without a group, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ackfloor.core.records.record import CommitPosition, StartPosition, TopicPartition
from ackfloor.ports import SourceListener
from ackfloor.testing.memory.consumer_groups import Member
from ackfloor.testing.memory.memory_broker import MemoryBroker
from ackfloor.testing.memory.memory_client import MemorySource


class MemoryBroadcastSource(MemorySource):
    """Reads all records of its topics; implements `ports.Source`.

    Args:
        broker: where to read.
        group: the app's group, which it does not join.
        batch: most records of one poll.
    """

    def __init__(self, broker: MemoryBroker, group: str, *, batch: int = 500) -> None:
        super().__init__(broker, group, start="latest", batch=batch)
        #: Where the partitions that are not read yet are to be read from.
        self._new: list[StartPosition] = []
        self._known: dict[str, int] = {}

    def _join(self, member: Member) -> None:
        """Join no group: partitions that exist now are read from their end."""
        self._known = dict.fromkeys(member.topics, 0)
        self._find(end=True)

    def _find(self, *, end: bool) -> None:
        with self._broker.changed:
            there = self._broker.topics
            for topic, known in self._known.items():
                for partition in range(known, there.get(topic, 0)):
                    log = self._broker.log(topic, partition)
                    position = log.end if end else log.start
                    self._new.append(StartPosition(topic, partition, position))
                    self._known[topic] = partition + 1

    def _has_news(self) -> bool:
        there = self._broker.topics
        grown = any(there.get(topic, 0) > known for topic, known in self._known.items())
        return bool(
            self._answers or self._new or grown or any(self._readable(k) for k in self._positions)
        )

    def _rebalance(self, listener: SourceListener) -> None:
        """Partitions only come, and stay."""
        self._find(end=False)
        starts, self._new = self._new, []
        for start in starts:
            self._positions[TopicPartition(start.topic, start.partition)] = start.position
        if starts:
            self._call(lambda: listener.on_assigned(starts))

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """There is no group to commit for: every position is reported as committed."""
        answers: list[tuple[CommitPosition, str | None]] = [(p, None) for p in positions]
        if not wait:
            self._answers.extend(answers)
        elif self._listener is not None:
            self._listener.on_committed(answers)
