"""Open dead letters of a group: how many, and how old the oldest is.

A dead letter is open until it is replayed, discarded or archived. Offsets alone are not enough:
transactional parking leaves markers, which are no dead letters and have no disposition. So the
topic is read from the first offset without a disposition up to the next dead letter.

That place is remembered: a look costs one record at most where nothing has changed, and one that
runs out of time goes on from there. Of a topic that can't be read, the number comes from the
offsets, and the age is not known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, Message, TopicPartition

from ackfloor.core.acks.progress import Progress
from ackfloor.dead_letters.kafka.disposition_reading import DispositionsLog
from ackfloor.dead_letters.kafka.record_reading import (
    EOF,
    READ_OVER,
    next_batch,
    offset_of,
    reading_consumer,
)
from ackfloor.dead_letters.rules.dispositions import Disposed, dispositions_topic_of
from ackfloor.errors import AckfloorError
from ackfloor.kafka.client.client_options import A_FEW_RECORDS, KafkaOptions
from ackfloor.kafka.topics.topic_ids import printed

#: Seconds for all partitions together.
PATIENCE_S = 10.0


@dataclass(slots=True)
class _Topic:
    """What is known of a dead-letter topic.

    Attributes:
        log: reads its dispositions; None as long as there are none.
        behind: partition -> an offset; none before it is open.
        oldest_ms: partition -> when the dead letter at `behind` was written.
        tried: partition -> how often it was read in vain since the last success.
    """

    disposed: Disposed
    log: DispositionsLog | None
    behind: dict[int, int]
    oldest_ms: dict[int, int]
    tried: dict[int, int]

    def reach(self, partition: int, offset: int) -> int:
        """Nothing before this offset is open; returns the first that may be."""
        first = self.disposed.first_without(partition, max(offset, self.behind.get(partition, 0)))
        if self.behind.get(partition) != first:
            self.behind[partition] = first
            self.oldest_ms.pop(partition, None)
        return first

    def is_reached(self, partition: int, message: Message) -> bool:
        """Note the next record; returns whether it is the oldest open one."""
        offset = offset_of(message)
        if offset < self.behind[partition]:
            return False
        self.behind[partition] = offset
        if self.disposed.hides(partition, offset):
            self.reach(partition, offset)
            return False
        self.oldest_ms[partition] = message.timestamp()[1]
        self.tried.pop(partition, None)
        return True


class OpenDeadLetters:
    """The open dead letters of groups, for repeated looks.

    Args:
        ids: returns the ids of topics.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(
        self, options: KafkaOptions, ids: Callable[[Collection[str]], Mapping[str, str]]
    ) -> None:
        self._options = options
        self._ids = ids
        #: By the topic's name and id.
        self._known: dict[tuple[str, str], _Topic] = {}

    def completed(
        self, found: Sequence[Progress], topics: Mapping[str, Collection[int]]
    ) -> list[Progress]:
        """Progress, completed with disposed and open dead letters.

        Args:
            topics: the partitions of all topics.
        """
        names = sorted({each.topic for each in found if each.kind == "dlq"})
        if not names:
            return list(found)
        known, notes = {}, {}
        ids = self._ids(names)
        for name in names:
            try:
                known[name] = self._read_on(name, printed(ids[name]), topics)
            except AckfloorError as exc:
                notes[name] = f"what was done with its dead letters is not known: {exc}"
        seen = [
            replace(each, note=notes.get(each.topic, each.note))
            if each.topic not in known
            else replace(
                each,
                disposed=known[each.topic].disposed.count_from(each.partition, each.start or 0),
            )
            for each in found
        ]
        self._look(known, [each for each in seen if each.topic in known and each.open])
        return [
            _with_oldest(each, known[each.topic]) if each.topic in known else each for each in seen
        ]

    def _read_on(self, name: str, topic_id: str, topics: Mapping[str, Collection[int]]) -> _Topic:
        """A topic's dispositions, read on from where the last look ended."""
        known = self._known.setdefault(
            (name, topic_id), _Topic(Disposed(topic_id), None, {}, {}, {})
        )
        dispositions = dispositions_topic_of(name)
        if known.log is None and dispositions in topics:
            known.log = DispositionsLog(self._options, dispositions, len(topics[dispositions]))
        if known.log is not None:
            known.log.read_on(known.disposed)
        return known

    def _look(self, known: Mapping[str, _Topic], seen: Collection[Progress]) -> None:
        """Read until the oldest open letter of each partition is known, or the time is over."""
        until_s = time.monotonic() + PATIENCE_S
        unread = []
        for each in seen:
            topic = known[each.topic]
            first = topic.reach(each.partition, each.start or 0)
            if each.partition not in topic.oldest_ms and first < (each.end or 0):
                unread.append((each.topic, each.partition))
        if not unread:
            return
        # A partition without a leader takes all the time: next time it comes last.
        unread.sort(key=lambda place: known[place[0]].tried.get(place[1], 0))
        with closing(reading_consumer(self._options, A_FEW_RECORDS)) as consumer:
            for name, partition in unread:
                if time.monotonic() >= until_s:
                    break
                _read(consumer, name, partition, known[name], until_s)


def _read(consumer: Consumer, name: str, partition: int, topic: _Topic, until_s: float) -> None:
    """Read one partition; of several, a broker sends large batches of the first alone."""
    consumer.assign([TopicPartition(name, partition, topic.behind[partition])])
    topic.tried[partition] = topic.tried.get(partition, 0) + 1
    while time.monotonic() < until_s:
        for message in next_batch(consumer):
            if (message.topic(), message.partition()) != (name, partition):
                continue
            error = message.error()
            if error is not None and error.code() == EOF:
                topic.behind[partition] = max(topic.behind[partition], offset_of(message))
            # At its end, or it failed.
            if error is not None or topic.is_reached(partition, message):
                return
            first = topic.behind[partition]
            if first - offset_of(message) > READ_OVER:
                consumer.seek(TopicPartition(name, partition, first))
                break


def _with_oldest(each: Progress, topic: _Topic) -> Progress:
    """Progress with the results of `_look`."""
    first = topic.behind.get(each.partition)
    if first is None or each.start is None or first < each.start:
        return each
    settled = each.disposed - topic.disposed.count_from(each.partition, first)
    return replace(
        each,
        empty=first - each.start - settled,
        oldest_ms=topic.oldest_ms.get(each.partition),
    )
