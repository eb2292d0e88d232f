"""LateStarts: assigned partitions whose start is not known yet.

They are assigned and paused, and what they wait for is looked at between two polls, with short
timeouts. A member that waited for it inside the rebalance callback would stand still meanwhile,
even the deadlines of its handlers. It is one of these:

* The group does not tell their committed positions. A worker that is killed during a transaction
  leaves it open until its successor starts, or until its timeout (20 s).
* A transaction of this worker carries them, from before it lost its partitions: while that is on
  its way, the group tells the position before it (`SourceListener.is_carried`).
* The brokers do not tell the id of their topic, or their log's range where nothing is committed.
  A leader that is away is no reason to end the worker.

A partition of a source topic waits with those of its retry topics in which keys are quarantined:
none of its records may start before it is known what is parked there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import error_text

#: After so many seconds without an answer the worker is replaced. Long, because everything else
#: goes on until then, and a transaction's timeout may be longer than the default.
PATIENCE_S = 120.0
#: Seconds for one request for all new partitions inside the callback; then again for single ones.
TOGETHER_S = 2.0
#: Seconds for a request for a single partition.
ONE_PARTITION_S = 0.25
#: Seconds between two requests outside of the callback.
AGAIN_S = 1.0
#: Seconds until those are asked for again whose start was not told although their position was.
UNTOLD_AGAIN_S = 2.0
#: Seconds between two looks while nothing that waits can begin.
HINDERED_S = 0.1


class LateStarts:
    """The partitions of one consumer that are assigned, paused, and not read yet.

    Args:
        quarantined_topics: retry topic -> the source topic that waits for it.
        hindrance: why a partition can't begin, whatever the group tells; empty if it can.
    """

    def __init__(
        self,
        consumer: Consumer,
        quarantined_topics: Mapping[str, str] | None = None,
        hindrance: Callable[[str, int], str] = lambda *_: "",
    ) -> None:
        self._consumer = consumer
        self._hindrance = hindrance
        self._quarantined_topics = quarantined_topics or {}
        #: Partition -> its deadline (monotonic seconds); asked for in this order.
        self._waiting: dict[tuple[str, int], float] = {}
        self._ask_at_s = 0.0
        #: Why the group did not answer last.
        self._error = ""
        #: Why the partition that was looked at last waits.
        self.why = ""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def partitions(self) -> list[TopicPartition]:
        """The waiting partitions for the client, at a position that is never read."""
        return [TopicPartition(*key, 0) for key in self._waiting]

    def ask(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The committed positions of new partitions; those without an answer wait from now on.

        Raises:
            SourceFailed: the group refuses to answer.
        """
        found = self._ask(self._unhindered(partitions))
        held = [p for p in partitions if self._is_held((p.topic, p.partition), self._waiting)]
        for partition in held:
            self._wait(partition)
        return [p for p in found if (p.topic, p.partition) not in self._waiting]

    def _unhindered(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those that can begin; the others wait, for as long as it takes."""
        hindered: set[tuple[str, int]] = set()
        for partition in partitions:
            if why := self._hindrance(partition.topic, partition.partition):
                self.why = why
                self._wait(partition)
                hindered.add((partition.topic, partition.partition))
        return [
            p
            for p in partitions
            if (p.topic, p.partition) not in hindered
            and not self._is_held((p.topic, p.partition), hindered)
        ]

    def _ask(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        if not partitions:
            return []
        found = self._committed(partitions, TOGETHER_S)
        if found is not None:
            return found
        until_s = time.monotonic() + TOGETHER_S
        found = []
        for partition in partitions:
            one = (
                self._committed([partition], ONE_PARTITION_S)
                if time.monotonic() < until_s
                else None
            )
            if one is None:
                self._wait(partition)
            found += one or []
        return found

    def _wait(self, partition: TopicPartition) -> None:
        self._waiting[partition.topic, partition.partition] = time.monotonic() + PATIENCE_S

    def _is_held(self, place: tuple[str, int], waiting: Container[tuple[str, int]]) -> bool:
        """Whether a source partition waits for one of its retry topics among these."""
        topic, number = place
        return any(
            (retry_topic, number) in waiting
            for retry_topic, source in self._quarantined_topics.items()
            if source == topic
        )

    def next(self) -> list[TopicPartition]:
        """Partitions whose committed position has become known; empty while it is too early to ask.

        Raises:
            SourceFailed: the group has not answered within `PATIENCE_S` seconds, or refuses.
        """
        now_s = time.monotonic()
        if not self._waiting or now_s < self._ask_at_s:
            return []
        # All at once, which works once a lost coordinator is back, or else the next one alone.
        every = self._unhindered(self.partitions())
        first = next(
            (p for p in every if not self._is_held((p.topic, p.partition), self._waiting)), None
        )
        if first is None:
            self._ask_at_s = now_s + HINDERED_S
            return []
        for some in [every, [first]] if len(every) > 1 else [[first]]:
            found = self._committed(some, ONE_PARTITION_S)
            if found is not None:
                self.forget(some)
                return found
        key = first.topic, first.partition
        until_s = self._waiting.pop(key)
        if now_s >= until_s:
            what = f"the committed position of {key[0]}/{key[1]}"
            raise SourceFailed(f"{what} could not be read in time: {self._error}")
        self._waiting[key] = until_s
        self._ask_at_s = time.monotonic() + AGAIN_S
        return []

    def again(self, partitions: Sequence[TopicPartition], why: str) -> None:
        """These have no start, whatever the group has told of them: they wait."""
        for partition in partitions:
            self._wait(partition)
        self.why = why
        self._ask_at_s = time.monotonic() + UNTOLD_AGAIN_S

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These wait no longer: they were taken away, or their position is known."""
        for partition in partitions:
            self._waiting.pop((partition.topic, partition.partition), None)

    def _committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> list[TopicPartition] | None:
        try:
            found: list[TopicPartition] = self._consumer.committed(
                [TopicPartition(p.topic, p.partition) for p in partitions], timeout=timeout_s
            )
        except KafkaException as exc:
            self._error = error_text(exc)
            self.why = f"the group does not tell their committed positions: {self._error}"
            return None
        for partition in found:
            if partition.error is not None:
                raise SourceFailed(
                    f"committed position of {partition}: {error_text(partition.error)}"
                )
        return found
