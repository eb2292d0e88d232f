"""KafkaBroadcastSource: every partition of the topics, read without a group.

The worker assigns all partitions to its consumer, so the broker knows no member and no group.
Reading starts at the log's end at that moment, with the leader epoch there: what an unclean
election puts below it is noticed then, also by a worker that has read nothing yet. A partition that
appears later is read from its beginning: everything in it was written since.

A thread with a client of its own asks for new partitions: the request blocks while a broker is
away, and the owner thread has deadlines to keep. Only at the start, when there is nothing else to
do, the owner thread asks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from ackfloor.core.parking.partition_text import partitions_text
from ackfloor.core.records.record import CommitPosition, StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import KafkaOptions, admin_config, make_client
from ackfloor.kafka.consume.committer import Committer, Result
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.membership import Membership
from ackfloor.kafka.consume.source import KafkaSource
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.consume.start_positions import PATIENCE_S, REQUEST_S, ask, log_range
from ackfloor.kafka.topics.topic_ids import TopicIds
from ackfloor.ports import SourceListener

log = logging.getLogger("ackfloor.kafka")

#: Seconds between two checks for new partitions, unless the client's property says otherwise.
LOOK_S = 30.0
#: Seconds for one request for all logs' ends; the rest is asked for one by one.
TIPS_S = 5.0
LOOK_PROPERTY = "topic.metadata.refresh.interval.ms"


class KafkaBroadcastSource(KafkaSource):
    """Reads all records of its topics; implements `ports.Source`.

    Args:
        options: the client's properties.
        group: the app's group; the client needs a name, but does not join it.
        watched, spare: as for `KafkaSource`.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(
        self,
        options: KafkaOptions,
        group: str,
        *,
        watched: Collection[str] = (),
        spare: Collection[str] = (),
    ) -> None:
        super().__init__(options, group, watched=watched, spare=spare)
        # It has no session: it is a member of no group.
        self._session_watch = None
        self._options = options
        self._answers: list[Result] = []
        self._watch: PartitionWatch | None = None

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Read these topics; partitions come with the first poll."""
        interval_s = float(self._config.get(LOOK_PROPERTY, LOOK_S * 1000)) / 1000
        self._watch = PartitionWatch(self._options, topics, interval_s)
        super().subscribe(topics, listener)

    def _make_membership(self) -> Membership:
        assert self._watch is not None
        return _Everything(
            self._consumer,
            self._reading,
            self._listener,
            self._commits,
            self._watch,
            self._topic_ids,
        )

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:
        """Report what there is; see `ports.Source`."""
        if self._answers:
            answers, self._answers = self._answers, []
            self._listener.on_committed(answers)
        return super().poll(timeout_s, ahead=ahead)

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit nothing, because there is no group, and report every position as committed."""
        results: list[Result] = [(position, None) for position in positions]
        if wait:
            self._listener.on_committed(results)
        else:
            self._answers.extend(results)

    def close(self) -> None:
        """Give everything back."""
        if self._watch is not None:
            self._watch.stop()
        super().close()


class _Everything(Membership):
    """All partitions of the topics, whichever other workers read them."""

    def __init__(
        self,
        consumer: Consumer,
        reading: SplitConsumer,
        listener: SourceListener,
        commits: Committer,
        watch: PartitionWatch,
        topic_ids: TopicIds,
    ) -> None:
        super().__init__(
            consumer,
            reading,
            listener,
            commits,
            topic_ids=topic_ids,
            copartitioned=CopartitionedRetryTopics({}, {}),
            incremental=True,
            start="latest",
        )
        self._watch = watch
        #: Topic -> how many partitions are read.
        self._known: dict[str, int] = {}

    def join(self, topics: Sequence[str]) -> None:
        """Join nothing: the first `look` assigns all partitions."""
        self._known = dict.fromkeys(topics, 0)

    def look(self) -> None:
        """Assign new partitions: the first time at the log's end, later from the beginning.

        Raises:
            SourceFailed: at the start, a broker did not answer or a topic does not exist.
        """
        if not self._watch.running:
            until_s = time.monotonic() + PATIENCE_S
            what = f"the partitions of {', '.join(self._known)}"
            counts = ask(what, lambda: self._counts(self._consumer), until_s)
            self._take(counts, end=True)
            self._topic_ids.learn(self._known)
            self._watch.start()
        elif self._watch.counts != self._known:
            self._take(self._watch.counts, end=False)
        super().look()

    def _counts(self, consumer: Consumer) -> dict[str, int] | None:
        counts = partition_counts(consumer.list_topics(timeout=REQUEST_S), self._known)
        return counts if all(counts.get(topic) for topic in self._known) else None

    def _take(self, counts: Mapping[str, int], *, end: bool) -> None:
        new = [
            (topic, partition)
            for topic, count in counts.items()
            for partition in range(self._known[topic], count)
        ]
        if not new:
            return
        # A new partition begins at 0; if it does no longer, the fetch says so.
        tips = self._topic_ids.log_tips(new, TIPS_S) if end else dict.fromkeys(new, (0, -1))
        starts = [
            StartPosition(*place, position, leader_epoch=epoch)
            for place in new
            for position, epoch in [tips.get(place) or (self._end(*place), -1)]
        ]
        self._known.update({t: max(self._known[t], count) for t, count in counts.items()})
        self._assign([TopicPartition(s.topic, s.partition, s.position) for s in starts])
        if not end:
            log.info("new partitions: %s", partitions_text(Partition(*place) for place in new))
        self._announce(starts)

    def _end(self, topic: str, partition: int) -> int:
        return log_range(self._consumer, topic, partition)[1]


class PartitionWatch:
    """Asks regularly how many partitions there are, on a thread of its own.

    Args:
        interval_s: seconds between two requests; 0 or below: it never asks.

    Attributes:
        counts: topic -> number of partitions by the last answer; replaced whole.
        running: whether it was started.
    """

    def __init__(self, options: KafkaOptions, topics: Sequence[str], interval_s: float) -> None:
        self._config = admin_config(options)
        self._topics = tuple(topics)
        self._interval_s = interval_s
        self._ending = threading.Event()
        self.counts: Mapping[str, int] = {}
        self.running = False

    def start(self) -> None:
        """Start the thread."""
        self.running = True
        if self._interval_s > 0:
            threading.Thread(target=self._run, name="ackfloor:partitions", daemon=True).start()

    def stop(self) -> None:
        """Stop asking; does not wait for an outstanding answer."""
        self._ending.set()

    def _run(self) -> None:
        logger = ClientLog(log, "client that looks for new partitions")
        admin = make_client(AdminClient, "admin", self._config, logger=logger)
        while not self._ending.wait(self._interval_s):
            try:
                metadata = admin.list_topics(timeout=REQUEST_S)
            except KafkaException as exc:
                # The broker is away, which the consumer logs.
                log.debug("partitions can't be listed: %s", exc)
            else:
                self.counts = partition_counts(metadata, self._topics)


def partition_counts(
    metadata: ClusterMetadata, topics: Sequence[str] | Mapping[str, int]
) -> dict[str, int]:
    """How many partitions each of these topics has; without those that don't exist."""
    return {
        name: len(found.partitions)
        for name in topics
        if (found := metadata.topics.get(name)) is not None and found.error is None
    }
