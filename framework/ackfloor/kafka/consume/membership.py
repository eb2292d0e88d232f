"""Membership: which partitions this consumer has, and what the listener is told of it.

Callbacks run inside the poll, on the owner thread. Rules, each seen on a broker:

* Every partition is assigned with an explicit position, of which the listener is told at once; one
  whose position is not known yet is paused, and the listener hears of it later (`late_starts`).
* An exception that leaves a callback leaves the client half assigned. Each is caught and the
  callback finishes; the source looks at `failure` before it reports anything, because the client
  then assigns by itself, and reads from where it thinks right.
* Leaving the group may still bring an assignment, on the thread that leaves (see `leave_group`). It
  is taken empty: nobody is there to read it, and that thread must reach nobody.
* Partitions come and go one by one under the cooperative and the broker's own (KIP-848)
  protocol, and all at once under the eager one; the client takes only the calls that fit.
* Under KIP-848 an empty assignment calls nobody back. A member of the group that hears nothing for
  a while has one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.record import StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import TopicReplaced
from ackfloor.kafka.consume.committer import Committer
from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
from ackfloor.kafka.consume.late_starts import LateStarts
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.consume.start_positions import Start, log_range, resolve
from ackfloor.kafka.groups.generation import admitted
from ackfloor.kafka.groups.leave_group import leave
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from ackfloor.ports import SourceListener

log = logging.getLogger("ackfloor.kafka")

#: A member that is told of no assignment is looked at this often; it is a spare at the second look.
SPARE_LOOK_S = 1.0
#: What the group has committed is asked for again where the rest of the answers took longer.
FRESH_S = 1.0


class Membership:
    """The assignment of one consumer.

    Args:
        reading: how it reads what it is assigned.
        copartitioned: what comes and goes with it.
        incremental: whether partitions come and go one by one.
        start: where a group without commits begins.
    """

    def __init__(
        self,
        consumer: Consumer,
        reading: SplitConsumer,
        listener: SourceListener,
        commits: Committer,
        *,
        topic_ids: TopicIds,
        copartitioned: CopartitionedRetryTopics,
        incremental: bool,
        start: Start,
    ) -> None:
        self._consumer = consumer
        self._reading = reading
        self._listener = listener
        self._commits = commits
        self._topic_ids = topic_ids
        self._copartitioned = copartitioned
        self._incremental = incremental
        self._start = start
        self._subscribed = False
        #: The partitions the listener was told of, and where each began, or went on at.
        self._began: dict[tuple[str, int], int] = {}
        #: Those it is to be told of, and what is known of their topics.
        self._late = LateStarts(consumer)
        self._described: Mapping[str, Described] = {}
        self._leaving = False
        #: The group has given an assignment, and has not taken it for lost.
        self._joined = False
        self._admitted = False
        self._spare_look_s = 0.0
        #: How often the group has told what this member is to read.
        self.assignment_count = 0
        self.failure: BaseException | None = None

    def join(self, topics: Sequence[str]) -> None:
        """Subscribe; everything else happens in callbacks."""
        self._subscribed = True
        self._consumer.subscribe(
            list(topics),
            on_assign=self._guarded(self._assigned),
            on_revoke=self._guarded(self._revoked),
            on_lost=self._guarded(self._lost),
        )

    def __contains__(self, partition: object) -> bool:
        return partition in self._began

    def partitions(self) -> list[TopicPartition]:
        """The partitions the listener knows of, for the client."""
        return [TopicPartition(*key) for key in self._began]

    def _guarded(self, react: Callable[[list[TopicPartition]], None]) -> Callable[..., None]:
        def callback(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                react(partitions)
            except BaseException as exc:  # noqa: BLE001 -- see the head of this file
                self.failure = self.failure or exc

        return callback

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        if self._leaving:
            self._decline()
            return
        self._learn({partition.topic for partition in partitions})
        came, gone = self._copartitioned.come(partitions)
        self._drop(gone)
        self._admit([*partitions, *came], self._assign)
        self._joined = True
        self.assignment_count += 1

    def _admit(
        self, partitions: list[TopicPartition], read: Callable[[list[TopicPartition]], None]
    ) -> None:
        """Read partitions from where the group left them, and tell the listener."""
        starts = self._starts(partitions) if partitions else []
        self._copartitioned.miss(self._not_begun(partitions, starts))
        explicit = [TopicPartition(s.topic, s.partition, s.position) for s in starts]
        late = self._late.partitions()
        came = {(p.topic, p.partition) for p in partitions}
        read([*explicit, *(p for p in late if (p.topic, p.partition) in came)])
        # A pause outlives an assignment: what was paused when it left would come back paused.
        self._reading.resume(explicit)
        if late:
            self._reading.pause(late)
        if starts or not (late or self._joined):
            # Also an empty one, once: a spare worker is a member that is ready to take over.
            self._announce(starts)

    def _learn(self, topics: set[str]) -> None:
        """Ask about topics that came, and about what follows them."""
        described = self._topic_ids.learn(topics | self._copartitioned.behind(topics))
        self._described = {**self._described, **described}
        self._reading.learn(self._copartitioned.learn(described))

    def _starts(self, partitions: list[TopicPartition]) -> list[StartPosition]:
        asked_s = time.monotonic()
        starts = self._resolved(self._late.ask(partitions))
        if time.monotonic() - asked_s < FRESH_S or not starts:
            return starts
        # A member that stood still may be outdated, and another one at work where it now begins.
        resolved = [TopicPartition(start.topic, start.partition) for start in starts]
        return self._resolved(self._late.ask(resolved))

    def _resolved(self, committed: Sequence[TopicPartition]) -> list[StartPosition]:
        return resolve(
            self._consumer, committed, self._start, self._described,
            self._topic_ids.log_ranges, self._reading.reads, self._copartitioned,
        )  # fmt: skip

    def _not_begun(
        self, partitions: Sequence[TopicPartition], starts: Sequence[StartPosition]
    ) -> list[TopicPartition]:
        """The followers among these that have no start, and wait for none."""
        begun = {(start.topic, start.partition) for start in starts}
        begun.update((late.topic, late.partition) for late in self._late.partitions())
        return [
            p
            for p in partitions
            if p.topic in self._copartitioned and (p.topic, p.partition) not in begun
        ]

    def _decline(self) -> None:
        if self._incremental:
            self._reading.incremental_assign([])
        else:
            self._reading.unassign()

    def _announce(self, starts: Sequence[StartPosition]) -> None:
        for start in starts:
            self._began[start.topic, start.partition] = start.position
        self._listener.on_assigned(starts)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        partitions = [*partitions, *self._copartitioned.go(partitions)]
        try:
            self._report_deleted(partitions)
            self._withdraw(partitions, self._listener.on_revoked)
        finally:
            self._unassign(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._joined = self._admitted = False
        partitions = [*partitions, *self._copartitioned.go(partitions)]
        try:
            self._withdraw(partitions, self._listener.on_lost)
        finally:
            self._unassign(partitions)

    def _withdraw(
        self,
        partitions: list[TopicPartition],
        tell: Callable[[Sequence[Partition]], None],
    ) -> None:
        """Tell the listener that partitions go, as far as it ever knew of them."""
        known = [Partition(p.topic, p.partition) for p in partitions]
        known = [partition for partition in known if partition in self._began]
        try:
            if known:
                tell(known)
        finally:
            for partition in known:
                del self._began[partition]
            self._late.forget(partitions)
            self._commits.forget(partitions)

    def leave(self) -> None:
        """Give everything back, before the client leaves the group."""
        self._leaving = True
        self._withdraw(self.partitions(), self._listener.on_revoked)

    def unsubscribe(self, until_s: float, *, silent: bool) -> None:
        """Leave the group, where one was joined, as far as closing does not; see `leave_group`."""
        if self._subscribed:
            leave(self._consumer, until_s, silent=silent)

    def look(self) -> None:
        """See to what no callback tells of: an empty assignment, another topic under a name, more
        partitions of a topic that follows, and a start that is known at last.

        Raises:
            TopicReplaced: a topic has become another one (see `topic_ids`).
            SourceFailed: a start is not known.
        """
        try:
            described = self._topic_ids.look(self._began, self._reading.resting)
        except TopicReplaced:
            self._report_deleted(self.partitions())
            raise
        if described:
            self._update_copartitioned(described)
        while committed := self._late.next():
            starts = self._resolved(committed)
            if missing := self._not_begun(committed, starts):
                self._copartitioned.miss(missing)
                self._reading.forget(missing)
            self._move([TopicPartition(s.topic, s.partition, s.position) for s in starts])
            self._announce(starts)
        if not self._joined:
            self._look_whether_spare()

    def _update_copartitioned(self, described: Mapping[str, Described]) -> None:
        """Topics may have more partitions than before."""
        self._copartitioned.learn(described)
        came, gone = self._copartitioned.changed()
        self._drop(gone)
        if came:
            topics = {partition.topic for partition in came}
            self._learn(topics)
            self._reading.learn(topics)
            self._admit(came, self._reading.follow)

    def _drop(self, gone: list[TopicPartition]) -> None:
        """Read followers no more whose source is still here.

        Nothing is committed: there is no such topic, or somebody else has read it for a moment.
        """
        if gone:
            self._report_deleted(gone)
            self._withdraw(gone, self._listener.on_lost)
            self._reading.forget(gone)

    def _report_deleted(self, partitions: list[TopicPartition]) -> None:
        """Tell of retry topics among these that are no more: nobody else reads on there."""
        deleted = [p for p in partitions if self._is_deleted(p)]
        if not deleted:
            return
        ends = [(Partition(p.topic, p.partition), self.last_end(p)) for p in deleted]
        for partition, _ in ends:
            del self._began[partition]
        self._late.forget(deleted)
        self._commits.forget(deleted)
        self._listener.on_deleted(ends)

    def _is_deleted(self, partition: TopicPartition) -> bool:
        topic = partition.topic
        gone = self._copartitioned.deleted(topic) or self._topic_ids.gone(topic)
        return gone and parse_topic(topic) is not None and (topic, partition.partition) in self

    def last_end(self, partition: TopicPartition) -> int:
        """Where a log ended as far as is known, by a fetch or by a look at what rests."""
        looked = self._topic_ids.ends.get((partition.topic, partition.partition), -1)
        return max(looked, self._reading.known_end(partition))

    def _look_whether_spare(self) -> None:
        now_s = time.monotonic()
        if now_s < self._spare_look_s:
            return
        self._spare_look_s = now_s + SPARE_LOOK_S
        # Admitted first, given partitions a moment later: only the second look counts.
        before, self._admitted = self._admitted, admitted(self._consumer.consumer_group_metadata())
        if before and self._admitted:
            self._joined = True
            self.assignment_count += 1
            self._announce([])

    def restart(self, topic: str, partition: int, wanted: int | None) -> None:
        """The log does not hold what was to be read next.

        Fallen behind the log's start: go on there; what was read already is still handled. Beyond
        its end: the topic was truncated, so everything that is there is read in a new epoch, late
        rather than lost; what runs may end and is committed first.

        Raises:
            TopicReplaced: it has become another topic.
        """
        topic_id = self._topic_ids.learn({topic})[topic].topic_id
        low, high = log_range(self._reading.reads(topic), topic, partition)
        target = TopicPartition(topic, partition, low)
        if wanted is not None and 0 <= wanted < low:
            if wanted < self._began[topic, partition]:
                # Told twice, or sought before the listener knew: it goes on where it was.
                self.reassign(self._whereabouts([target]))
                return
            log.error(
                "%s/%d: retention has removed what was to be read next, %d to %d; going on at %d",
                topic, partition, wanted, low - 1, low,
            )  # fmt: skip
            self.reassign([target])
            self._began[topic, partition] = low
            self._listener.on_gone(Partition(topic, partition), low)
            return
        log.error(
            "%s/%d: position %s is outside the log (%d to %d): the topic was truncated; reading it "
            "from its start, %d",
            topic, partition, wanted, low, high, low,
        )  # fmt: skip
        self._withdraw([target], self._listener.on_revoked)
        self._move([target])
        self._announce([StartPosition(topic, partition, low, False, topic_id=topic_id)])

    def _move(self, targets: list[TopicPartition]) -> None:
        """Read partitions from other positions, paused or not."""
        self.reassign(targets)
        self._reading.resume(targets)

    def _assign(self, explicit: list[TopicPartition]) -> None:
        if self._incremental:
            self._reading.incremental_assign(explicit)
        else:
            self._reading.assign(explicit)

    def _unassign(self, partitions: list[TopicPartition]) -> None:
        if self._incremental:
            self._reading.incremental_unassign(partitions)
        else:
            self._reading.unassign()

    def reassign(self, targets: list[TopicPartition]) -> None:
        """Read partitions from other positions where the client refuses to seek.

        It does once it has stopped fetching for an error; a new assignment it takes.
        """
        if self._incremental:
            self._reading.move(targets)
            return
        moved = {(p.topic, p.partition) for p in targets}
        rest = [*self._whereabouts(self.partitions()), *self._late.partitions()]
        kept = [p for p in rest if (p.topic, p.partition) not in moved]
        self._reading.move_beside(targets, kept)

    def _whereabouts(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next positions, where nothing has been read yet those at which reading began."""
        return [
            TopicPartition(p.topic, p.partition, max(p.offset, self._began[p.topic, p.partition]))
            for p in self._reading.position(partitions)
        ]
