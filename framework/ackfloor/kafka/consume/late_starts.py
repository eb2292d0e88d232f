"""LateStarts: assigned partitions of which the group does not say yet where they were left.

A worker that is killed in the middle of a transaction leaves it open until its successor starts,
or until its timeout (20 s). So long the group does not tell what it has committed of the
partitions in it. Whoever gets them must not wait for that inside the rebalance callback: nothing
else of the worker would go on meanwhile, not even the deadlines of what runs. So they are
assigned and paused, and the group is asked between two polls, and briefly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import error_text

log = logging.getLogger("ackfloor.kafka")

#: After so many seconds without an answer the worker starts afresh. Everything else goes on till
#: then, and a transaction may have been given more time than it has by default.
PATIENCE_S = 120.0
#: Seconds for all partitions that have come, inside the callback; and then for some of them alone.
TOGETHER_S = 2.0
#: Seconds for a question about one of them.
ONE_PARTITION_S = 0.25
#: Seconds between two questions outside of the callback.
AGAIN_S = 1.0


class LateStarts:
    """The partitions of one consumer that are assigned, paused, and not read yet."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        #: Partition -> when the patience with it is over (monotonic seconds); asked in this order.
        self._waiting: dict[tuple[str, int], float] = {}
        self._ask_at_s = 0.0
        self._why = ""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def partitions(self) -> list[TopicPartition]:
        """Those that wait, for the client: at a position that is never read."""
        return [TopicPartition(*key, 0) for key in self._waiting]

    def ask(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """What the group has committed of partitions that have come; the others wait from now on.

        Raises:
            SourceFailed: the group refuses to tell.
        """
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
                key = partition.topic, partition.partition
                self._waiting[key] = time.monotonic() + PATIENCE_S
                log.warning(
                    "%s/%d: the group does not say where it was left (%s): it is asked again, and "
                    "the partition waits", *key, self._why,
                )  # fmt: skip
            found += one or []
        return found

    def next(self) -> list[TopicPartition]:
        """Those that wait no longer, with what is committed of them; none where it is too early.

        Raises:
            SourceFailed: the group has not said it within `PATIENCE_S` seconds, or refuses to.
        """
        now_s = time.monotonic()
        if not self._waiting or now_s < self._ask_at_s:
            return []
        # All together, as after a coordinator that was away, or else the next one alone.
        first, *others = self.partitions()
        for some in [[first, *others], [first]] if others else [[first]]:
            found = self._committed(some, ONE_PARTITION_S)
            if found is not None:
                self.forget(some)
                return found
        key = first.topic, first.partition
        until_s = self._waiting.pop(key)
        if now_s >= until_s:
            what = f"the committed position of {key[0]}/{key[1]}"
            raise SourceFailed(f"{what} could not be read in time: {self._why}")
        self._waiting[key] = until_s
        self._ask_at_s = time.monotonic() + AGAIN_S
        return []

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions leave before they were read."""
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
            self._why = error_text(exc)
            return None
        for partition in found:
            if partition.error is not None:
                raise SourceFailed(
                    f"committed position of {partition}: {error_text(partition.error)}"
                )
        return found
