"""Committer: commits whose answers come by callback, or within a bound.

librdkafka's blocking commit has no time limit: with a silent broker (one that accepts the
connection and does not answer) it still waited after five minutes, and with it a revoke or the end
of a worker. From another thread it starves while the owner polls.

So every commit is asynchronous, and its answer comes through the poll. Inside a rebalance callback
and at the end there is no poll to wait for; there the group is asked what it has now. Both requests
go to the coordinator over one connection, in order, so the second answer shows whether the first
request succeeded, and asking has a time limit. Positions that the group does not have are sent
again: under KIP-848 the group refuses a commit sent at the moment in which the member gets a new
epoch (STALE_MEMBER_EPOCH), and accepts it shortly after. What the group does not have in the end
counts as not committed: records are redelivered, none is lost.

A member that the group has thrown out commits nothing. A group of others refuses it, but one that
is empty by then takes positions from anybody: those of an owner that is late would undo what later
owners have committed, and with it the transactions that say which records are parked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackfloor.core.records.record import CommitPosition
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.groups.generation import fences_nothing

log = logging.getLogger("ackfloor.kafka")

Result = tuple[CommitPosition, str | None]

#: Why nothing is committed.
THROWN_OUT = "refused: the group has thrown this worker out"
#: Seconds before each further attempt of a commit that must be answered now.
AGAIN_S = (0.1, 0.3, 0.6)


class Committer:
    """Commits positions of one consumer.

    Args:
        tell: gets the result of each position.
    """

    def __init__(self, tell: Callable[[Sequence[Result]], None]) -> None:
        self._tell = tell
        self._outstanding: dict[tuple[str, int], CommitPosition] = {}

    def commit(self, consumer: Consumer, positions: Sequence[CommitPosition]) -> None:
        """Send one request; its results are reported in a later poll."""
        for position in positions:
            self._outstanding[position.topic, position.partition] = position
        if fences_nothing(consumer.consumer_group_metadata()):
            self._settle([(position, THROWN_OUT) for position in positions])
            return
        try:
            consumer.commit(offsets=[offset_of(p) for p in positions], asynchronous=True)
        except KafkaException as exc:
            why = error_text(exc)
            self._settle([(position, why) for position in positions])

    def commit_now(
        self, consumer: Consumer, positions: Sequence[CommitPosition], timeout_s: float
    ) -> None:
        """Send one request, retry it if it is refused, and report its results before returning."""
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
        """Ask whether the group has these positions now."""
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
        """Partitions were taken away: their commits' answers are no longer reported."""
        for partition in partitions:
            self._outstanding.pop((partition.topic, partition.partition), None)

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Take the answer to an asynchronous commit; the client calls this inside the poll."""
        results: list[Result] = []
        # If the broker refused some partitions, the client sets the error of one of them for the
        # whole request, too; the others are committed.
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


def offset_of(position: CommitPosition) -> TopicPartition:
    """A position as the client commits it, with its metadata and leader epoch where it has them."""
    given: dict[str, Any] = {}
    if position.metadata:
        given["metadata"] = position.metadata
    if position.leader_epoch >= 0:
        given["leader_epoch"] = position.leader_epoch
    return TopicPartition(position.topic, position.partition, position.position, **given)


def _same(position: CommitPosition, found: TopicPartition) -> bool:
    """Whether an answer is about this commit, and not about an earlier one."""
    return (found.offset, found.metadata or "") == (position.position, position.metadata)


def _difference(position: CommitPosition, found: TopicPartition | None) -> str | None:
    """Why the group does not have what was committed; None if it has."""
    if found is None:
        return "the broker did not say what it has"
    if found.error is not None:
        return f"not confirmed in time: {error_text(found.error)}"
    if _same(position, found):
        return None
    have = f"position {found.offset}" if found.offset >= 0 else "no position"
    return f"refused: the group has {have} afterwards"
