"""Committer: commits whose answers come by callback, or at once within a bound.

librdkafka's blocking commit has no time limit: with a broker that is silent (not gone: it
accepts and does not answer) it was still waiting after five minutes, and a revoke or the end of a
worker with it. From another thread it starves: while the owner polls, it does not get through.

So every commit is an asynchronous one. Its answer comes through the poll; where that can't be
waited for (inside a rebalance callback, and at the end), the group is asked what it has now.
Both requests go to the coordinator over one connection, in order, so the answer to the second
tells of the first, and asking has a time limit. What is not seen there is sent again: under KIP-848
the group refuses what was sent in the moment in which it gave the member a new epoch
(STALE_MEMBER_EPOCH), and takes it a moment later. What is not seen in the end counts as not
committed: records come again, none is lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackfloor.core.records.record import CommitPosition
from ackfloor.kafka.client.client_errors import error_text

log = logging.getLogger("ackfloor.kafka")

Result = tuple[CommitPosition, str | None]

#: Seconds before each further attempt of a commit that must be answered now.
AGAIN_S = (0.1, 0.3, 0.6)


class Committer:
    """Commits positions of one consumer.

    Args:
        tell: is told what became of each position.
    """

    def __init__(self, tell: Callable[[Sequence[Result]], None]) -> None:
        self._tell = tell
        self._outstanding: dict[tuple[str, int], CommitPosition] = {}

    def commit(self, consumer: Consumer, positions: Sequence[CommitPosition]) -> None:
        """Send one request; what becomes of it is told in a later poll."""
        for position in positions:
            self._outstanding[position.topic, position.partition] = position
        try:
            consumer.commit(offsets=[_offset(p) for p in positions], asynchronous=True)
        except KafkaException as exc:
            why = error_text(exc)
            self._settle([(position, why) for position in positions])

    def commit_now(
        self, consumer: Consumer, positions: Sequence[CommitPosition], timeout_s: float
    ) -> None:
        """Send one request, again if it is refused, and tell what became of it before returning."""
        until_s = time.monotonic() + timeout_s
        waiting: Sequence[CommitPosition] = positions
        for pause_s in (*AGAIN_S, None):
            self.commit(consumer, waiting)
            waiting = [p for p in waiting if self._outstanding.get((p.topic, p.partition)) is p]
            if not waiting:
                return
            results = self._ask(consumer, waiting, until_s)
            refused = [result for result in results if result[1] is not None]
            if pause_s is None or not refused or time.monotonic() + pause_s >= until_s:
                self._settle(results)
                return
            self._settle([result for result in results if result[1] is None])
            waiting = [position for position, _ in refused]
            time.sleep(pause_s)

    @staticmethod
    def _ask(
        consumer: Consumer, positions: Sequence[CommitPosition], until_s: float
    ) -> list[Result]:
        """Whether the group has these positions now."""
        left_s = max(0.0, until_s - time.monotonic())
        try:
            found = consumer.committed([_partition(p) for p in positions], timeout=left_s)
        except KafkaException as exc:
            return [
                (position, f"not confirmed in time: {error_text(exc)}") for position in positions
            ]
        have = {(p.topic, p.partition): p for p in found}
        return [(p, _difference(p, have.get((p.topic, p.partition)))) for p in positions]

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are gone: nobody waits for their answers any more."""
        for partition in partitions:
            self._outstanding.pop((partition.topic, partition.partition), None)

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """An asynchronous commit came back; the client calls it inside the poll."""
        results: list[Result] = []
        # Where the broker has refused some partitions, the client tells it of the request as well,
        # in the words of one of them; the others are committed.
        of_each = any(partition.error is not None for partition in partitions)
        for partition in partitions:
            found = partition.error if of_each else error
            why = None if found is None else error_text(found)
            position = self._outstanding.get((partition.topic, partition.partition))
            if position is not None and _same(position, partition):
                results.append((position, why))
            elif why is not None:
                log.info(
                    "the last commit of %s/%d at %d was refused: %s",
                    partition.topic, partition.partition, partition.offset, why,
                )  # fmt: skip
        self._settle(results)

    def _settle(self, results: Sequence[Result]) -> None:
        for position, _ in results:
            self._outstanding.pop((position.topic, position.partition), None)
        if results:
            self._tell(results)


def _partition(position: CommitPosition) -> TopicPartition:
    return TopicPartition(position.topic, position.partition)


def _offset(position: CommitPosition) -> TopicPartition:
    if position.metadata:
        return TopicPartition(
            position.topic, position.partition, position.position, position.metadata
        )
    return TopicPartition(position.topic, position.partition, position.position)


def _same(position: CommitPosition, found: TopicPartition) -> bool:
    """Whether an answer is about this commit, and not about one that nobody waits for any more."""
    return (found.offset, found.metadata or "") == (position.position, position.metadata)


def _difference(position: CommitPosition, found: TopicPartition | None) -> str | None:
    """Why what the group has is not what was committed; None where it is."""
    if found is None:
        return "the broker did not say what it has"
    if found.error is not None:
        return f"not confirmed in time: {error_text(found.error)}"
    if _same(position, found):
        return None
    have = f"position {found.offset}" if found.offset >= 0 else "no position"
    return f"refused: the group has {have} afterwards"
