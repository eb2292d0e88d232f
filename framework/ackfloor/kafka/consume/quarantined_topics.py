"""QuarantinedTopics: what is parked in retry topics, read before their partitions are announced.

A handler that quarantines keeps the order of a key across its retry topics. So whoever takes a
partition over has to know what is parked there before it starts a record of the source. A client of
its own reads the logs from the start positions to their ends; see `core/acks/parked_records.py` for
what counts. It belongs to no group, and exists only while there is something to read.

The end is that of all that is written, in open transactions as well: a worker that was killed may
have left one whose records are committed a moment later. The client reads committed records only,
so it waits for the end of such a transaction. What a transaction has aborted, and its markers, come
as no record; but the client's position passes them.

This runs inside rebalance callbacks. A broker that is silent stops the worker after `PATIENCE_S`
seconds without any progress: to go on without knowing what is parked would break the order of keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ackfloor.core.acks.parked_records import ParkedRecords
from ackfloor.core.records.record import Record, StartPosition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import OUT_OF_RANGE, error_text
from ackfloor.kafka.client.client_options import KafkaOptions, quiet_consumer
from ackfloor.kafka.consume.start_positions import PATIENCE_S, PAUSE_S, log_range
from ackfloor.kafka.topics.log_ranges import Place
from ackfloor.kafka.topics.topic_ids import TopicIds

log = logging.getLogger("ackfloor.kafka")
T = TypeVar("T")

#: Seconds until it is asked whether a topic that nothing comes from was deleted.
FLEETING_S = 2.0
#: Seconds for one request for all ends.
REQUEST_S = 2.0
#: Seconds for one poll that brings nothing.
POLL_S = 0.05
#: A batch's values are in memory at once.
BATCH = 500
_CLIENT: Mapping[str, Any] = {
    # It reports where a log ends, after which there is nothing to wait for.
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,
    # It is there beside the clients that read, so it reads less ahead.
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.queue.backoff.ms": 1,
}


class QuarantinedTopics:
    """The retry topics of handlers that quarantine.

    Args:
        options: the client's properties.
        group: the app's group; the client needs a name, but does not join it.
        sources: retry topic -> its source topic.
        topic_ids: tells the logs' ends, and which topics were deleted.

    Attributes:
        sources: as given.
    """

    def __init__(
        self, options: KafkaOptions, group: str, sources: Mapping[str, str], topic_ids: TopicIds
    ) -> None:
        self._options = options
        self._group = group
        self.sources = sources
        self._topic_ids = topic_ids
        #: Those of which the brokers have said that they do not exist.
        self._absent: set[str] = set()

    def find_starts(
        self,
        committed: Sequence[TopicPartition],
        find: Callable[[Sequence[TopicPartition]], list[StartPosition]],
    ) -> list[StartPosition]:
        """The starts of partitions, in which none of these topics is left out that is there.

        A log that was truncated is read from its start: a fetch would tell it only after the source
        has begun.

        Args:
            find: finds the starts; it gives up early on topics that may have been deleted.

        Raises:
            SourceFailed: a start is not found.
            TopicReplaced: a topic was deleted and created anew.
        """
        starts = find(committed)
        missing = self._missing(committed, starts)
        patience = _Patience(self._topic_ids)
        while missing:
            waiting = {(p.topic, p.partition) for p in missing}
            gone = patience.check(waiting, "its start is not known")
            missing = [p for p in missing if p.topic not in gone]
            found = find(missing)
            starts += found
            missing = self._missing(missing, found)
        return self._within_logs(starts)

    def _missing(
        self, wanted: Sequence[TopicPartition], starts: Sequence[StartPosition]
    ) -> list[TopicPartition]:
        """The partitions of these topics that have no start."""
        found = {(start.topic, start.partition) for start in starts}
        return [
            p for p in wanted if p.topic in self.sources and (p.topic, p.partition) not in found
        ]

    def _within_logs(self, starts: Sequence[StartPosition]) -> list[StartPosition]:
        """The same, of these topics with no position beyond a log's end."""
        suspect = {
            (start.topic, start.partition): start.position
            for start in starts
            if start.topic in self.sources
            and (start.log_end is None or start.position > start.log_end)
        }
        if not (truncated := self._truncated(suspect)):
            return [*starts]
        ranges = self._ask(self._topic_ids.log_ranges, truncated, "its start is not known")
        anew: list[StartPosition] = []
        for start in starts:
            found = ranges.get((start.topic, start.partition))
            if found is None:
                anew.append(start)
                continue
            low, high = found
            log.error(
                "%s/%d: position %d is beyond the log's end: the topic was truncated; reading it "
                "from its start, %d",
                start.topic, start.partition, start.position, low,
            )  # fmt: skip
            anew.append(
                StartPosition(*start[:2], low, False, topic_id=start.topic_id, log_end=high)
            )
        return anew

    def _truncated(self, positions: Mapping[Place, int]) -> set[Place]:
        """The partitions whose positions are beyond their logs' ends; asked twice."""
        beyond = set(positions)
        for look in range(2):
            if look and beyond:
                time.sleep(PAUSE_S)
            ends = self._ends(beyond)
            beyond = {place for place, end in ends.items() if end < positions[place]}
        return beyond

    def with_parked(self, starts: Sequence[StartPosition]) -> Sequence[StartPosition]:
        """Start positions with what is parked behind them.

        Raises:
            SourceFailed: a log could not be read to its end.
            TopicReplaced: a topic was deleted and created anew.
        """
        positions = {
            (start.topic, start.partition): start.position
            for start in starts
            if start.topic in self.sources
        }
        ends = self._ends(positions)
        unread = {place: end for place, end in ends.items() if end > positions[place]}
        if not unread:
            return starts
        parked = {
            (start.topic, start.partition): ParkedRecords(start, self.sources[start.topic])
            for start in starts
            if (start.topic, start.partition) in unread
        }
        begun_s = time.monotonic()
        with closing(quiet_consumer(self._options, self._group, _CLIENT)) as consumer:
            reading = _Reading(consumer, parked, unread, _Patience(self._topic_ids))
            reading.begin({place: positions[place] for place in unread})
            while reading:
                reading.step()
        found = {place: parked[place].start() for place in parked if place not in reading.gone}
        log.debug(
            "%d parked records read from %d partitions in %.3f s",
            sum(len(start.parked) for start in found.values()), len(found),
            time.monotonic() - begun_s,
        )  # fmt: skip
        return [found.get((start.topic, start.partition), start) for start in starts]

    def absent(self, topics: Collection[str]) -> set[str]:
        """Which of these topics do not exist.

        At the second word, as in `_Patience.check`; once more is enough for one that did not exist
        the last time. In doubt a topic exists: then its partitions are waited for.

        Raises:
            TopicReplaced: a topic was deleted and created anew.
        """
        found = self._ask_absent(topics)
        if found - self._absent:
            time.sleep(FLEETING_S)
            found = self._ask_absent(found)
        self._absent = (self._absent - {*topics}) | found
        return found

    def _ask_absent(self, topics: Collection[str]) -> set[str]:
        described = self._topic_ids.learn(topics) if topics else {}
        return {topic for topic, answer in described.items() if answer.absent}

    def _ends(self, places: Collection[Place]) -> dict[Place, int]:
        """The ends of logs, open transactions included; without those of deleted topics."""
        return self._ask(self._topic_ids.log_ends, places, "its end is not known")

    def _ask(
        self,
        question: Callable[[Collection[Place], float], Mapping[Place, T]],
        places: Collection[Place],
        why: str,
    ) -> dict[Place, T]:
        """What the brokers say of logs, without those of deleted topics."""
        patience = _Patience(self._topic_ids)
        found: dict[Place, T] = {}
        missing = set(places)
        while missing:
            found.update(question(missing, REQUEST_S))
            missing -= found.keys()
            if missing:
                gone = patience.check(missing, why)
                missing = {place for place in missing if place[0] not in gone}
                time.sleep(PAUSE_S)
        return found


class _Patience:
    """How long answers are waited for: while there is progress, and a while after."""

    def __init__(self, topic_ids: TopicIds) -> None:
        self._topic_ids = topic_ids
        self._absent: set[str] = set()
        self.renew()

    def renew(self) -> None:
        """There was progress."""
        now_s = time.monotonic()
        self._until_s = now_s + PATIENCE_S
        self._look_s = now_s + FLEETING_S

    def check(self, waiting: Collection[Place], why: str) -> set[str]:
        """The topics of these partitions that were deleted.

        At the second look: the first may be at a broker that does not know a new topic yet.

        Raises:
            SourceFailed: nothing came for too long.
            TopicReplaced: a topic was deleted and created anew.
        """
        now_s = time.monotonic()
        if now_s >= self._until_s:
            topic, partition = min(waiting)
            more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
            raise SourceFailed(
                f"what is parked in {topic}/{partition}{more} could not be read in time: {why}"
            )
        if now_s < self._look_s:
            return set()
        self._look_s = now_s + FLEETING_S
        described = self._topic_ids.learn({topic for topic, _ in waiting})
        absent = {topic for topic, found in described.items() if found.absent}
        gone, self._absent = absent & self._absent, absent
        return gone


class _Reading:
    """Some logs while they are read; true until all are read to their ends.

    Attributes:
        gone: the partitions among them whose topics were deleted meanwhile.
    """

    def __init__(
        self,
        consumer: Consumer,
        parked: Mapping[Place, ParkedRecords],
        ends: Mapping[Place, int],
        patience: _Patience,
    ) -> None:
        self._consumer = consumer
        self._parked = parked
        #: Those that are not read yet, and their ends.
        self._waiting = dict(ends)
        self._patience = patience
        self._positions: dict[Place, int] = {}
        #: Those whose position is below the log's start now, because of retention.
        self._outside: set[Place] = set()
        self._why = ""
        self.gone: set[Place] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, positions: Mapping[Place, int]) -> None:
        """Read from these positions."""
        self._positions = dict(positions)
        self._consumer.assign([TopicPartition(*place, at) for place, at in positions.items()])

    def step(self) -> None:
        """Take what has come, or find out what keeps it."""
        first = self._consumer.poll(POLL_S)
        # `consume` with a time would wait for all of a batch.
        batch = [] if first is None else [first, *self._consumer.consume(BATCH, 0)]
        records = batch
        if any(map(Message.error, batch)):
            records = [message for message in batch if message.error() is None]
            self._note([m for m in batch if m.error() is not None])
        for place, run in groupby(records, _place):
            self._take(place, list(run))
        if records:
            self._patience.renew()
        if len(records) < len(batch) or not batch:
            # At a log's end, or nothing comes: the positions may have passed what never does.
            self._look()

    def _take(self, place: Place, run: list[Message]) -> None:
        if place in self._waiting:
            self._parked[place].read(cast("Iterable[Record]", run))
            self._passed(place, cast("int", run[-1].offset()) + 1)

    def _passed(self, place: Place, position: int) -> None:
        self._positions[place] = position
        if position >= self._waiting[place]:
            del self._waiting[place]

    def _note(self, errors: Sequence[Message]) -> None:
        for message in errors:
            error, place = message.error(), _place(message)
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                continue
            self._why = error_text(error)
            log.debug("parked records: %s/%s: %s", *place, self._why)
            if error.code() in OUT_OF_RANGE and place in self._waiting:
                self._outside.add(place)

    def _look(self) -> None:
        """Take the client's own positions, and check whether anything can still come."""
        waiting = [TopicPartition(*place) for place in self._waiting]
        for found in self._consumer.position(waiting) if waiting else ():
            place = found.topic, found.partition
            if found.offset > self._positions[place]:
                self._passed(place, found.offset)
                self._patience.renew()
        for place in self._outside & self._waiting.keys():
            self._move_to_start(place)
        if self._waiting:
            topics = self._patience.check(self._waiting, self._why or self._open())
            for place in [place for place in self._waiting if place[0] in topics]:
                log.warning("%s/%d: the topic was deleted; nothing is parked there", *place)
                del self._waiting[place]
                self.gone.add(place)

    def _open(self) -> str:
        """What is likely where no error says so."""
        place = min(self._waiting)
        at, end = self._positions[place], self._waiting[place]
        return f"read to {at} of {end}, where a transaction may be open"

    def _move_to_start(self, place: Place) -> None:
        """Go on at the log's start, which retention has moved."""
        try:
            low, _ = log_range(self._consumer, *place, time.monotonic())
        except SourceFailed as exc:
            log.debug("%s", exc)
            return
        self._outside.discard(place)
        if low > self._positions[place]:
            self._passed(place, low)
        if place in self._waiting:
            # The client refuses to seek after such an error.
            self._consumer.incremental_unassign([TopicPartition(*place)])
            self._consumer.incremental_assign([TopicPartition(*place, low)])


def _place(message: Message) -> Place:
    return cast("str", message.topic()), cast("int", message.partition())
