"""KafkaSource: the group's consumer; implements `ports.Source`.

How Kafka and librdkafka behave, and what the source does about it (each point has a test on a real
broker that fails without it, tests/framework/kafka/consume/test_source.py):

* `consume(n, timeout)` would wait for n records. So the source polls for the first record and then
  takes the queued ones without waiting, which costs a millisecond at a low rate. It reports the
  first record before it takes the rest, because a rebalance may run inside that second call.
* A pause drops the prefetched records, and `resume` alone takes up to a second to deliver again;
  resume followed by a seek to the next position takes a millisecond.
* `position()` passes records that never arrive (aborted transactions, markers) at the log's
  end, where no later record would show it.
* The broker does not check who commits a partition: commits carry the assignment's epoch, and the
  engine drops those of an earlier one. A commit without offsets would wipe metadata, so there is
  none. A blocking commit has no time limit: see `committer`.
* Assign and revoke: see `membership`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from math import inf

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ackfloor.core.messages.fault_causes import (
    DENIED,
    LOOK_CLOSER,
    UNCONFIRMED,
    Trouble,
)
from ackfloor.core.records.record import CommitPosition, Record
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed, TopicReplaced
from ackfloor.kafka.client.client_errors import (
    OUT_OF_RANGE,
    advice,
    ended_for_good,
    error_text,
    is_fatal,
    refused_setting,
)
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import (
    KafkaOptions,
    broker_assigns,
    check_drain,
    consumer_config,
    incremental,
    leaves_in_silence,
    make_client,
    poll_limit_ms,
    reader_config,
)
from ackfloor.kafka.consume.committer import Committer, Result
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.membership import Membership
from ackfloor.kafka.consume.new_matches import NewMatches
from ackfloor.kafka.consume.new_retry_topics import NewTiers
from ackfloor.kafka.consume.quarantined_topics import QuarantinedTopics
from ackfloor.kafka.consume.session_watch import SessionWatch
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.consume.start_positions import Start
from ackfloor.kafka.topics.topic_ids import TopicIds
from ackfloor.ports import SourceListener

log = logging.getLogger("ackfloor.kafka")

BATCH = 1_000
#: How long a revoke waits for its commit to be answered.
COMMIT_S = 10.0
#: How long closing may take, commits included: a supervisor waits for `GRACE_S` seconds only.
LEAVE_S = 8.0
#: The shortest time limit of a request, however little time is left.
SHORTEST_S = 1.0
#: A persistent error is logged again after this time.
SAY_AGAIN_S = 30.0
DIFFERENT_ERRORS = 100


class KafkaSource:
    """Reads a consumer group's records.

    Args:
        options: the client's properties.
        group: the consumer group.
        start: where a group without commits begins.
        batch: how many records one poll takes at most.
        drain_s: how long a listener may take over `on_revoked`, in seconds.
        instance_id: the static member's name in the group, which its successor takes over; None
            for a member that leaves when it ends.
        watched: topics that must not be replaced by others of the same name, read or not.
        spare: those of the watched and co-partitioned topics that may be deleted, because nothing
            is written to them any more.
        low_priority_topics: topics that may be read a moment later, by a client of their own.
        copartitioned: those of them that are not shared out by the group.
        new_tiers: looks for others that should be read.
        quarantined_topics: retry topics of handlers that quarantine, and the source of each; what
            is parked there is reported with their start positions.
        new_matches: looks for topics that a pattern matches.
        siblings: topic that a pattern matches -> all topics of its pattern; see `start_positions`.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(
        self,
        options: KafkaOptions,
        group: str,
        start: Start = "earliest",
        batch: int = BATCH,
        *,
        drain_s: float = 0.0,
        instance_id: str | None = None,
        watched: Collection[str] = (),
        spare: Collection[str] = (),
        low_priority_topics: Collection[str] = (),
        copartitioned: CopartitionedRetryTopics | None = None,
        new_tiers: NewTiers | None = None,
        quarantined_topics: Mapping[str, str] | None = None,
        new_matches: NewMatches | None = None,
        siblings: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._siblings = siblings or {}
        self._new_matches = new_matches
        self._low_priority_topics = low_priority_topics
        self._copartitioned = copartitioned or CopartitionedRetryTopics({}, {})
        self._new_tiers = new_tiers
        self._config = consumer_config(options, group, instance_id)
        self._instance_id = instance_id
        check_drain(self._config, drain_s)
        self._topic_ids = TopicIds(options, {*watched, *self._copartitioned.topics}, spare)
        self._quarantined = (
            QuarantinedTopics(options, group, quarantined_topics, self._topic_ids)
            if quarantined_topics
            else None
        )
        self._start = start
        self._batch = batch
        self._consumer: Consumer
        self._reading: SplitConsumer
        self._listener: SourceListener
        self._commits = Committer(self._committed)
        self._membership: Membership
        #: Where the client itself does not notice that its session is over.
        self._session_watch = SessionWatch(options, group) if broker_assigns(self._config) else None
        #: The group, while its partitions are given up because its coordinator is silent.
        self._silent: dict[str, Trouble] = {}
        self._full = False
        #: Error text -> when it may be logged again.
        self._say_again_s: dict[str, float] = {}
        #: The group, where this user may not work in it: until it assigns or takes a commit.
        self._denied: dict[str, Trouble] = {}
        self._denied_at = 0
        self._closed = False
        #: When it has to be gone (monotonic seconds), once it leaves.
        self._leave_until_s = inf

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics."""
        self._listener = listener
        config = {**self._config, "on_commit": self._commits.on_commit}
        group = self._config["group.id"]
        logger = ClientLog(log, f"consumer of group {group}")
        self._consumer = make_client(Consumer, "consumer", config, logger=logger)
        reader = None
        if self._low_priority_topics:
            logger = ClientLog(log, f"reader of group {group}'s retry topics")
            reader = make_client(Consumer, "consumer", reader_config(self._config), logger=logger)
        self._reading = SplitConsumer(self._consumer, reader, self._low_priority_topics)
        self._reading.learn(self._low_priority_topics)
        self._membership = self._make_membership()
        subscribed = [topic for topic in topics if topic not in self._copartitioned]
        self._membership.join(subscribed)
        if self._session_watch is not None and subscribed:
            self._session_watch.start(self._consumer, subscribed[0])
        if self._new_tiers is not None:
            self._new_tiers.start(subscribed, self._copartitioned.topics)
        if self._new_matches is not None:
            self._new_matches.start()

    def _make_membership(self) -> Membership:
        return Membership(
            self._consumer,
            self._reading,
            self._listener,
            self._commits,
            topic_ids=self._topic_ids,
            copartitioned=self._copartitioned,
            incremental=incremental(self._config),
            start=self._start,
            quarantined=self._quarantined,
            siblings=self._siblings,
        )

    # Records.

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:
        """Report what there is; see `ports.Source`."""
        if self._session_watch is not None:
            self._look_at_session(self._session_watch)
        count = self._read(timeout_s) if ahead else self._read_tiers(timeout_s)
        self._membership.look()
        if self._new_tiers is not None:
            self._new_tiers.check()
        if self._new_matches is not None:
            self._new_matches.check()
        if self._denied and self._membership.assignment_count != self._denied_at:
            self._denied.clear()
        return count

    def _look_at_session(self, watch: SessionWatch) -> None:
        """Handle nothing while the group may have given the partitions to others."""
        if self._silent and watch.steady():
            self._silent.clear()
            self._membership.take_up()
        elif why := watch.silence():
            # Also what came since: a member that was thrown out joined anew, and is silent again.
            self._note_silence(why)
            self._membership.suspend()

    def _note_silence(self, why: str) -> None:
        if self._silent:
            return
        group = self._config["group.id"]
        log.warning(
            "the coordinator of group %s has given %s: its session may be over, so this worker "
            "handles nothing until it answers", group, why,
        )  # fmt: skip
        self._silent[f"group {group}"] = Trouble(UNCONFIRMED, why, LOOK_CLOSER)

    def _read(self, timeout_s: float) -> int:
        count = 0
        if not self._full:
            count = self._read_first(timeout_s)
        if count or self._full:
            batch = self._reading.consume(self._batch)
            self._check()
            self._full = len(batch) >= self._batch
            count += self._report(batch)
        return count

    def _read_first(self, timeout_s: float) -> int:
        first = self._reading.poll(timeout_s)
        self._check()
        return 0 if first is None else self._report([first])

    def _read_tiers(self, timeout_s: float) -> int:
        """All records of retry tiers, and a source record that the poll for callbacks may bring."""
        time.sleep(timeout_s)
        count = self._read_first(0.0)
        batch = self._reading.consume_tiers(self._batch)
        self._check()
        return count + self._report(batch)

    def _check(self) -> None:
        """Raise if a rebalance callback failed, before its records are reported."""
        failure = self._membership.failure
        if isinstance(failure, TopicReplaced):
            raise failure
        if failure is not None:
            raise SourceFailed(f"a rebalance callback failed: {error_text(failure)}") from failure

    def _report(self, messages: list[Message]) -> int:
        failed: list[tuple[KafkaError, Message]] = []
        # Errors are rare: the usual batch is passed on as it is.
        if any(map(Message.error, messages)):
            failed = [(error, m) for m in messages if (error := m.error()) is not None]
            messages = [message for message in messages if message.error() is None]
        if messages:
            records: Sequence[Record] = messages  # type: ignore[assignment]
            self._listener.on_records(records)
        # Last: an error may end its partition's epoch, to which the records above belong.
        for error, message in failed:
            self._erred(error, message)
        return len(messages)

    def troubles(self) -> Mapping[str, Trouble]:
        """Present faults at the brokers; see `ports.Source`."""
        left_out = {} if self._new_matches is None else self._new_matches.troubles
        return {**left_out, **self._topic_ids.troubles, **self._silent, **self._denied}

    def silent(self) -> bool:
        """Whether the session may be over; see `ports.Source`."""
        return self._session_watch is not None and bool(self._session_watch.silence())

    def look_closer(self) -> None:
        """Ask soon about the topics; see `ports.Source`."""
        self._topic_ids.hurry()

    def _erred(self, error: KafkaError, message: Message) -> None:
        # A fatal error arrives as a message whose error does not say that it is fatal.
        if is_fatal(error):
            raise ended_for_good(error, self._config)
        topic, partition = message.topic(), message.partition()
        refused = refused_setting(error, self._config) if topic is None else None
        if refused is not None:
            # The client would ask the group again and again.
            raise refused
        if error.code() in OUT_OF_RANGE and topic is not None and partition is not None:
            if (topic, partition) in self._membership:
                self._membership.restart(topic, partition, message.offset())
            return
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            group = self._config["group.id"]
            fix = f"grant READ on group {group}"
            self._denied[f"group {group}"] = Trouble(DENIED, "not allowed", fix)
            self._denied_at = self._membership.assignment_count
        text = error_text(error) + advice(error)
        if topic is not None and topic not in text:
            # Not its partition: a topic that may not be read would be a line for each.
            text = f"{topic}: {text}"
        text = f"consumer of group {self._config['group.id']}: {text}"
        now_s = time.monotonic()
        if now_s >= self._say_again_s.get(text, 0.0):
            log.warning("%s", text)
            if len(self._say_again_s) >= DIFFERENT_ERRORS:
                self._say_again_s.clear()
            self._say_again_s[text] = now_s + SAY_AGAIN_S

    # Commits.

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit positions with their metadata; see `ports.Source`."""
        if wait:
            within_s = min(COMMIT_S, self._leave_until_s - time.monotonic())
            self._commits.commit_now(self._consumer, positions, max(SHORTEST_S, within_s))
        else:
            self._commits.commit(self._consumer, positions)

    def _committed(self, results: Sequence[Result]) -> None:
        if any(refused is None for _, refused in results):
            self._denied.clear()
        self._listener.on_committed(results)

    def membership(self) -> object:
        """The group metadata: member and generation. A transaction with outdated ones fails."""
        return self._consumer.consumer_group_metadata()

    # Flow.

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching partitions."""
        mine = [p for p in partitions if p in self._membership]
        if mine:
            self._reading.pause([TopicPartition(*p) for p in mine])

    def resume(self, positions: Sequence[tuple[Partition, int]]) -> None:
        """Fetch partitions again, each from its next unread position."""
        for partition, position in positions:
            if partition in self._membership:
                target = TopicPartition(partition.topic, partition.partition, position)
                self._membership.go_on_at(target)

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The consumer's own next positions."""
        assigned = self._membership.partitions()
        if not assigned:
            return {}
        return {
            (p.topic, p.partition): p.offset
            for p in self._reading.position(assigned)
            if p.offset >= 0
        }

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """The last known log ends."""
        ends: dict[tuple[str, int], int] = {}
        for partition in self._membership.partitions():
            end = self._membership.last_end(partition)
            if end >= 0:
                ends[partition.topic, partition.partition] = end
        return ends

    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions topics have, as last told: at an assignment, or seconds ago."""
        return self._membership.partition_counts

    def poll_limit_s(self) -> float:
        """`max.poll.interval.ms` in seconds."""
        return poll_limit_ms(self._config) / 1000

    def close(self) -> None:
        """Leave the group; the listener's `on_revoked` runs first, on this thread."""
        if self._closed:
            return
        self._closed = True
        self._leave_until_s = time.monotonic() + LEAVE_S
        try:
            self._membership.leave()
        finally:
            self._topic_ids.close()
            for watch in (self._new_tiers, self._new_matches):
                if watch is not None:
                    watch.stop()
            # With an unanswered commit closing can take minutes; the process's exit ends it.
            leaving = threading.Thread(target=self._leave, name="ackfloor:leave", daemon=True)
            leaving.start()
            leaving.join(max(SHORTEST_S, self._leave_until_s - time.monotonic()))
            if leaving.is_alive():
                log.warning(
                    "the broker did not confirm in time that this consumer leaves; its "
                    "partitions are given to others when its session times out"
                )

    def _leave(self) -> None:
        try:
            # A static member stays in the group: its successor takes over its partitions.
            if self._instance_id is None:
                # Leave time for the close within the same bound.
                at_least_s = time.monotonic() + SHORTEST_S / 2
                until_s = max(at_least_s, self._leave_until_s - SHORTEST_S)
                self._membership.unsubscribe(until_s, silent=leaves_in_silence(self._config))
        finally:
            if self._session_watch is not None:
                self._session_watch.stop()
            self._reading.close()
