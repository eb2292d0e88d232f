"""KafkaSource: the group's consumer; implements `ports.Source`.

How Kafka really behaves, and what is done about it (each has a test on a real broker that fails
without it, tests/framework/kafka/test_source.py):

* Polling for the first record and then taking what is there costs a millisecond at a trickle;
  `consume(n, timeout)` would wait for n. The first record is reported before the rest is asked
  for, because a rebalance may run inside that second call.
* A pause throws the prefetch away, and `resume` alone takes up to a second to deliver again;
  resume followed by a seek to the next position takes a millisecond.
* `position()` passes records that never arrive (aborted transactions, markers) at the log's
  end, where no record would ever say so.
* Commits are not fenced by ownership: they carry the epoch, and are dropped by the engine when
  it is over. A commit without offsets would wipe metadata, so there is none.
* An exception that leaves a rebalance callback leaves the client half assigned: each is caught,
  the callback finishes, and `poll` fails the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ackfloor.core.model import CommitPosition, Record, StartPosition
from ackfloor.core.model import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.errors import OUT_OF_RANGE, kafka_error, told
from ackfloor.kafka.options import KafkaOptions, consumer_config
from ackfloor.kafka.start_positions import Start, log_range, resolve
from ackfloor.ports import SourceListener

log = logging.getLogger("ackfloor.kafka")

BATCH = 2_000


class KafkaSource:
    """Reads a consumer group's records.

    Args:
        options: the client's properties.
        group: the consumer group.
        start: where a group without commits begins.
        batch: how many records one poll takes at most.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(
        self, options: KafkaOptions, group: str, start: Start = "earliest", batch: int = BATCH
    ) -> None:
        self._config = consumer_config(options, group)
        self._start = start
        self._batch = batch
        self._consumer: Consumer
        self._listener: SourceListener
        self._outstanding: dict[tuple[str, int], CommitPosition] = {}
        self._failure: BaseException | None = None
        self._full = False
        self._last_error = ""
        self._closed = False

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics."""
        self._listener = listener
        self._consumer = Consumer({**self._config, "on_commit": self._committed}, logger=log)
        self._consumer.subscribe(
            list(topics),
            on_assign=self._guarded(self._assigned),
            on_revoke=self._guarded(self._revoked),
            on_lost=self._guarded(self._lost),
        )

    # Rebalances: callbacks inside poll, on the same thread.

    def _guarded(self, react: Callable[[list[TopicPartition]], None]) -> Callable[..., None]:
        def callback(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                react(partitions)
            except BaseException as exc:  # noqa: BLE001 -- see the head of this file
                self._failure = self._failure or exc

        return callback

    @property
    def _cooperative(self) -> bool:
        # The client says which protocol the group settled on only while it is a member.
        strategies = str(self._config.get("partition.assignment.strategy", "cooperative"))
        return "cooperative" in strategies

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        starts = resolve(self._consumer, partitions, self._start) if partitions else []
        explicit = [TopicPartition(s.topic, s.partition, s.position) for s in starts]
        if self._cooperative:
            self._consumer.incremental_assign(explicit)
        else:
            self._consumer.assign(explicit)
        # A partition that was paused when it left would come back paused.
        self._consumer.resume(explicit)
        if starts:
            self._listener.on_assigned(starts)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        try:
            if partitions:
                self._listener.on_revoked([Partition(p.topic, p.partition) for p in partitions])
        finally:
            self._unassign(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        try:
            if partitions:
                self._listener.on_lost([Partition(p.topic, p.partition) for p in partitions])
        finally:
            self._unassign(partitions)

    def _unassign(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._outstanding.pop((partition.topic, partition.partition), None)
        if self._cooperative:
            self._consumer.incremental_unassign(partitions)
        else:
            self._consumer.unassign()

    # Records.

    def poll(self, timeout_s: float) -> int:
        """Report what there is; see `ports.Source`."""
        count = 0
        if not self._full:
            first = self._consumer.poll(timeout_s)
            if first is not None:
                count = self._report([first])
        if count or self._full:
            batch = self._consumer.consume(self._batch, 0)
            self._full = len(batch) == self._batch
            count += self._report(batch)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise SourceFailed(f"a rebalance callback failed: {told(failure)}") from failure
        return count

    def _report(self, messages: list[Message]) -> int:
        # One pass for errors, which are rare, keeps the usual batch as it came.
        if any([message.error() is not None for message in messages]):  # noqa: C419 -- faster
            for message in messages:
                error = message.error()
                if error is not None:
                    self._erred(error, message)
            messages = [message for message in messages if message.error() is None]
        if messages:
            records: Sequence[Record] = messages  # type: ignore[assignment]
            self._listener.on_records(records)
        return len(messages)

    def _erred(self, error: KafkaError, message: Message) -> None:
        if error.fatal():
            raise SourceFailed(told(error))
        topic, partition = message.topic(), message.partition()
        if error.code() in OUT_OF_RANGE and topic is not None and partition is not None:
            self._restart(message, topic, partition)
            return
        text = told(error)
        if text != self._last_error:
            log.warning("%s", text)
            self._last_error = text

    def _restart(self, message: Message, topic: str, partition: int) -> None:
        """The log no longer holds what was to be read: a new epoch, loudly."""
        low, high = log_range(self._consumer, topic, partition)
        wanted = message.offset()
        lost = low - wanted if wanted is not None and 0 <= wanted < low else 0
        log.error(
            "%s/%d: position %s is outside the log (%d to %d); going on at %d",
            topic,
            partition,
            wanted,
            low,
            high,
            low,
        )
        self._listener.on_lost([Partition(topic, partition)])
        self._outstanding.pop((topic, partition), None)
        self._reassign(TopicPartition(topic, partition, low))
        self._listener.on_assigned([StartPosition(topic, partition, low, False, "", lost)])

    def _reassign(self, target: TopicPartition) -> None:
        """The client has stopped fetching it: a seek is refused, a new assignment is not."""
        if self._cooperative:
            self._consumer.incremental_unassign([target])
            self._consumer.incremental_assign([target])
            return
        others = [
            p
            for p in self._consumer.position(self._consumer.assignment())
            if (p.topic, p.partition) != (target.topic, target.partition)
        ]
        self._consumer.assign([*others, target])

    # Commits.

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit positions with their metadata; see `ports.Source`."""
        offsets = [
            TopicPartition(p.topic, p.partition, p.position, p.metadata)
            if p.metadata
            else TopicPartition(p.topic, p.partition, p.position)
            for p in positions
        ]
        for position in positions:
            self._outstanding[position.topic, position.partition] = position
        try:
            if not wait:
                self._consumer.commit(offsets=offsets, asynchronous=True)
                return
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as exc:
            error = kafka_error(exc)
            self._answer([(p.topic, p.partition, told(error or exc)) for p in positions])
            return
        self._answer([(p.topic, p.partition, _why(None, p)) for p in answer or offsets])

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._answer([(p.topic, p.partition, _why(error, p)) for p in partitions])

    def _answer(self, answers: Sequence[tuple[str, int, str | None]]) -> None:
        results = [
            (position, error)
            for topic, partition, error in answers
            if (position := self._outstanding.pop((topic, partition), None)) is not None
        ]
        if results:
            self._listener.on_committed(results)

    # Flow.

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching partitions."""
        mine = self._mine()
        paused = [TopicPartition(p.topic, p.partition) for p in partitions if tuple(p) in mine]
        if paused:
            self._consumer.pause(paused)

    def resume(self, positions: Sequence[tuple[Partition, int]]) -> None:
        """Fetch partitions again, each from its next unread position."""
        mine = self._mine()
        for partition, position in positions:
            if tuple(partition) in mine:
                target = TopicPartition(partition.topic, partition.partition, position)
                self._consumer.resume([target])
                self._consumer.seek(target)

    def _mine(self) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self._consumer.assignment()}

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The consumer's own next positions."""
        assigned = self._consumer.assignment()
        if not assigned:
            return {}
        return {
            (p.topic, p.partition): p.offset
            for p in self._consumer.position(assigned)
            if p.offset >= 0
        }

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """The last known log ends."""
        ends: dict[tuple[str, int], int] = {}
        for partition in self._consumer.assignment():
            known = self._consumer.get_watermark_offsets(partition, cached=True)
            if known[1] >= 0:
                ends[partition.topic, partition.partition] = known[1]
        return ends

    def close(self) -> None:
        """Leave the group; the revoke callback runs inside."""
        if not self._closed:
            self._closed = True
            self._consumer.close()
            if self._failure is not None:
                log.error("leaving the group: %s", told(self._failure))


def _why(error: KafkaError | None, partition: Any) -> str | None:
    found = error or partition.error
    return None if found is None else told(found)
