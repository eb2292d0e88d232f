"""Membership: the rebalance callbacks (assign, revoke, lost) and this consumer's assignment.

Callbacks run inside the poll, on the owner thread. Rules, each seen on a broker:

* Every partition is assigned with an explicit position, which is reported to the listener at once.
  One whose position is not known yet is paused and reported later (`late_starts`).
* An exception that leaves a callback leaves the client half assigned. So each exception is caught
  and the callback finishes. The client then assigns by itself and reads from a position of its own
  choice, so the source checks `failure` before it reports anything.
* Leaving the group may still bring an assignment, on the thread that leaves (see `leave_group`). It
  is declined: nobody would read it, and that thread must not call the listener.
* Partitions are assigned and revoked one by one under the cooperative and the KIP-848 protocol, and
  all at once under the eager one; the client accepts only the calls of its protocol.
* Under KIP-848 an empty assignment causes no callback. A member that was admitted and got no
  callback for a while has one.
* A member that may have been thrown out without being told so (`session_watch`) gives up its
  partitions towards the listener. The client keeps them, paused, until the group says what holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.record import StartPosition
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed, TopicReplaced
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.consume.committer import Committer
from ackfloor.kafka.consume.copartitioned_retry_topics import (
    CopartitionedRetryTopics,
    Place,
    places_of,
)
from ackfloor.kafka.consume.late_starts import LateStarts
from ackfloor.kafka.consume.position_epochs import PositionEpochs
from ackfloor.kafka.consume.quarantined_topics import QuarantinedTopics
from ackfloor.kafka.consume.split_consumer import SplitConsumer
from ackfloor.kafka.consume.start_positions import STARTS_S, Start, log_range, resolve
from ackfloor.kafka.consume.unread_partitions import UnreadPartitions
from ackfloor.kafka.groups.generation import admitted
from ackfloor.kafka.groups.leave_group import leave
from ackfloor.kafka.topics.topic_ids import Described, TopicIds
from ackfloor.ports import SourceListener

log = logging.getLogger("ackfloor.kafka")

#: How often a member without an assignment is checked; at the second check it is a standby member.
SPARE_LOOK_S = 1.0
#: If finding the starts took longer, the committed positions are asked for again.
FRESH_S = 1.0
#: How long the brokers have inside a callback to tell of the topics that were assigned.
LEARN_S = 2.0
#: How long they have between two polls for what decides where partitions start.
LATE_S = 0.5
UNDESCRIBED = Described(silent=True)
#: How long the end of a log that has lost records is asked for.
ENDS_S = 2.0


class Membership:
    """The assignment of one consumer.

    Args:
        reading: the clients that read the assigned partitions.
        copartitioned: the retry topics that are read along with their source's partitions.
        incremental: whether partitions are assigned and revoked one by one.
        start: where a group without commits begins.
        quarantined: the retry topics whose logs are read before they are announced.
        siblings: topic that a pattern matches -> all topics of its pattern.
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
        quarantined: QuarantinedTopics | None = None,
        siblings: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._reading = reading
        self._listener = listener
        self._commits = commits
        self._topic_ids = topic_ids
        self._copartitioned = copartitioned
        self._incremental = incremental
        self._start = start
        #: They decide where a topic without a commit starts, and only where that is not its start.
        self._siblings = siblings if siblings is not None and start == "latest" else {}
        self._quarantined = quarantined
        self._subscribed = False
        #: The partitions reported to the listener, and the position at which each began.
        self._began: dict[tuple[str, int], int] = {}
        #: The topic ids with which they began. Records that are read again keep their keys by them.
        self._ids: dict[tuple[str, int], str] = {}
        #: Those still to be reported, and the descriptions of their topics.
        sources = None if quarantined is None else quarantined.sources
        self._late = LateStarts(consumer, sources, self._hindrance)
        self._described: Mapping[str, Described] = {}
        #: Topic -> how many partitions it has, by the last answer that told.
        self.partition_counts: dict[str, int] = {}
        self._unread = UnreadPartitions()
        self._why_left_out = ""
        #: Positions that the broker is still to be asked about: whether the log below them is the
        #: one that the group has read.
        self._to_validate: dict[tuple[str, int], TopicPartition] = {}
        self._epochs = PositionEpochs(reading.position)
        self._leaving = False
        #: Partitions that the listener was told are lost, while the client still has them.
        self._suspended: set[tuple[str, int]] = set()
        #: Whether the group has given an assignment that was not lost since.
        self._joined = False
        self._admitted = False
        self._spare_look_s = 0.0
        #: How many assignments the group has given.
        self.assignment_count = 0
        self.failure: BaseException | None = None

    def join(self, topics: Sequence[str]) -> None:
        """Subscribe; partitions come in callbacks."""
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
        """The partitions that were reported to the listener."""
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
    ) -> list[TopicPartition]:
        """Read partitions from their committed positions, and report them to the listener.

        Returns the retry partitions among them that have no start: nothing was done with them.
        """
        starts = self._starts(partitions) if partitions else []
        missing = self._miss(self._not_begun(partitions, starts))
        explicit = [TopicPartition(s.topic, s.partition, s.position) for s in starts]
        late = self._late.partitions()
        came = {(p.topic, p.partition) for p in partitions}
        waiting = [p for p in late if (p.topic, p.partition) in came]
        if waiting:
            self._unread.left_out(places_of(waiting), self._late.why)
        read([*explicit, *waiting])
        # A pause outlives an assignment: a partition revoked while paused would come back paused.
        self._reading.resume(explicit)
        if late:
            self._reading.pause(late)
        if starts or not (late or self._joined):
            # Once also an empty one: a standby member without partitions is ready to take over.
            self._announce(starts)
        return missing

    def _learn(self, topics: set[str]) -> None:
        """Ask about topics that were assigned, and their retry topics.

        Inside a callback, so briefly: what nobody tells is asked for again between two polls.
        """
        asked = topics | self._copartitioned.behind(topics) | self._siblings_of(topics)
        described = self._topic_ids.learn(asked, LEARN_S)
        self._note(described)
        self._reading.learn(self._copartitioned.learn(described))

    def _siblings_of(self, topics: Collection[str]) -> set[str]:
        return set[str]().union(*(self._siblings.get(topic, ()) for topic in topics))

    def _note(self, described: Mapping[str, Described]) -> None:
        """Keep what the brokers have told; by being silent they take nothing back."""
        known = self._described
        answered = {t: d for t, d in described.items() if not d.silent or t not in known}
        self._described = {**known, **answered}
        counts = {topic: len(found.partitions) for topic, found in described.items()}
        self.partition_counts.update({topic: count for topic, count in counts.items() if count})

    def _undescribed(self, topics: Collection[str]) -> set[str]:
        """Of these topics and their siblings those of which the brokers have told too little.

        A record's idempotency key has the id of its source topic: it must not be there the one time
        and not the other. Where a group without commits starts at the end, all partitions have to
        be known as well.
        """
        return {
            topic
            for topic in {*topics} | self._siblings_of(topics)
            if parse_topic(topic) is None
            and (found := self._described.get(topic, UNDESCRIBED)).silent
            and not (found.topic_id and (found.partitions or self._start != "latest"))
        }

    def _starts(self, partitions: list[TopicPartition]) -> list[StartPosition]:
        asked_s = time.monotonic()
        starts = self._resolved(self._late.ask(partitions), STARTS_S)
        if time.monotonic() - asked_s < FRESH_S or not starts:
            return starts
        # Meanwhile another member may have had the partitions and committed.
        resolved = [TopicPartition(start.topic, start.partition) for start in starts]
        return self._resolved(self._late.ask(resolved), STARTS_S)

    def _hindrance(self, topic: str, partition: int) -> str:
        """Why a partition can't begin yet, whatever the group has committed; empty if it can."""
        if self._listener.is_carried(Partition(topic, partition)):
            return "a transaction that commits them or writes to them has not ended yet"
        if undescribed := self._undescribed([topic]):
            return f"no broker tells what topic {min(undescribed)} is"
        return ""

    def _resolved(
        self, committed: Sequence[TopicPartition], within_s: float
    ) -> list[StartPosition]:
        find = partial(self._resolve, within_s)
        if self._quarantined is None:
            return find(committed)
        return self._quarantined.find_starts(committed, find)

    def _resolve(self, within_s: float, committed: Sequence[TopicPartition]) -> list[StartPosition]:
        return resolve(
            self._consumer, committed, self._start, self._described,
            self._topic_ids.log_ranges, self._reading.reads, self._left_out, self._siblings,
            within_s,
        )  # fmt: skip

    def _left_out(self, why: SourceFailed) -> None:
        self._why_left_out = f"{why}"

    def _miss(self, missing: Sequence[TopicPartition]) -> list[TopicPartition]:
        """These have no start, and are not read until the brokers tell it.

        Returns the retry partitions among them: they come anew once their topics are known.
        """
        if not missing:
            return []
        retries = [p for p in missing if p.topic in self._copartitioned]
        self._copartitioned.miss(retries)
        if others := [p for p in missing if p.topic not in self._copartitioned]:
            self._late.again(others, self._why_left_out)
        self._unread.left_out(places_of(missing), self._why_left_out)
        return retries

    def _not_begun(
        self, partitions: Sequence[TopicPartition], starts: Sequence[StartPosition]
    ) -> list[TopicPartition]:
        """Those of these that have no start and do not wait for one."""
        begun = {(start.topic, start.partition) for start in starts}
        begun.update((late.topic, late.partition) for late in self._late.partitions())
        return [p for p in partitions if (p.topic, p.partition) not in begun]

    def _decline(self) -> None:
        if self._incremental:
            self._reading.incremental_assign([])
        else:
            self._reading.unassign()

    def _announce(self, starts: Sequence[StartPosition]) -> None:
        if self._quarantined is not None:
            starts = self._with_absent(self._quarantined.with_parked(starts), self._quarantined)
        for start in starts:
            self._began[start.topic, start.partition] = start.position
            self._ids[start.topic, start.partition] = start.topic_id
            self._epochs.began((start.topic, start.partition), start.position, start.leader_epoch)
            if start.leader_epoch >= 0:
                self._to_validate[start.topic, start.partition] = TopicPartition(
                    start.topic, start.partition, start.position, leader_epoch=start.leader_epoch
                )
        self._unread.begun((start.topic, start.partition) for start in starts)
        self._listener.on_assigned(starts)

    def _with_absent(
        self, starts: Sequence[StartPosition], quarantined: QuarantinedTopics
    ) -> Sequence[StartPosition]:
        """The same with the retry topics that source partitions do not have to wait for."""
        sources = {start.topic for start in starts} & {*quarantined.sources.values()}
        if not sources:
            return starts
        unknown = {source: self._copartitioned.unknown(source) for source in sources}
        absent = quarantined.absent(set[str]().union(*unknown.values()))
        return [
            start._replace(absent=frozenset(unknown[start.topic] & absent))
            if start.topic in sources
            else start
            for start in starts
        ]

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
        """Report to the listener those of these partitions that it knows, and forget them."""
        known = [Partition(p.topic, p.partition) for p in partitions]
        known = [partition for partition in known if partition in self._began]
        try:
            if known:
                tell(known)
        finally:
            for partition in known:
                del self._began[partition], self._ids[partition]
                self._to_validate.pop(partition, None)
            self._late.forget(partitions)
            self._commits.forget(partitions)
            self._epochs.forget(places_of(partitions))
            self._suspended.difference_update((p.topic, p.partition) for p in partitions)
            if self._unread:
                self._forget_unread(set(places_of(partitions)))

    def _forget_unread(self, gone: Collection[Place]) -> None:
        """What is not read yet of partitions that are gone is not ours to read."""
        retries, followed = self._copartitioned, self._copartitioned.followed()
        self._unread.keep(
            lambda place: place not in gone and (place[0] not in retries or place in followed)
        )

    def suspend(self) -> None:
        """Give up every partition for lost: other members may have them by now."""
        held = [*self.partitions(), *self._late.partitions()]
        if not held:
            return
        self._reading.pause(held)
        self._withdraw(held, self._listener.on_lost)
        self._suspended.update((p.topic, p.partition) for p in held)

    def take_up(self) -> None:
        """Go on with suspended partitions which the group has not taken away, where it stands."""
        partitions = [TopicPartition(*key) for key in sorted(self._suspended)]
        self._suspended.clear()
        if partitions and (missing := self._admit(partitions, self._go_on_at)):
            # The reader still has them. They come again, as new ones, once their start is known.
            self._reading.forget(missing)
        self._update_copartitioned()

    def _go_on_at(self, targets: list[TopicPartition]) -> None:
        for target in targets:
            self.go_on_at(target)

    def leave(self) -> None:
        """Have the listener give up all partitions, before the client leaves the group."""
        self._leaving = True
        self._withdraw(self.partitions(), self._listener.on_revoked)

    def unsubscribe(self, until_s: float, *, silent: bool) -> None:
        """Do the part of leaving the group that closing does not do; see `leave_group`."""
        if self._subscribed:
            leave(self._consumer, until_s, silent=silent)

    def look(self) -> None:
        """Check what causes no callback: an empty assignment, a replaced topic, more partitions of
        a retry topic, a start that has become known, and a log that was truncated below a start.

        Raises:
            TopicReplaced: a topic was deleted and created anew (see `topic_ids`).
            SourceFailed: a start did not become known in time.
        """
        try:
            undescribed = self._undescribed({late.topic for late in self._late.partitions()})
            described = self._topic_ids.look(self._began, self._reading.resting, undescribed)
        except TopicReplaced:
            self._report_deleted(self.partitions())
            raise
        if described:
            self._note(described)
            self._copartitioned.learn(described)
            if not self._suspended:
                self._update_copartitioned()
        while committed := self._late.next():
            starts = self._resolved(committed, LATE_S)
            if missing := self._miss(self._not_begun(committed, starts)):
                self._reading.forget(missing)
            if starts:
                self._move([TopicPartition(s.topic, s.partition, s.position) for s in starts])
                self._announce(starts)
        self._validate()
        if not self._joined:
            self._check_standby()

    def _validate(self) -> None:
        """Have the client ask the broker whether the logs were truncated below their starts.

        It does when it is told to go on at a position with an epoch (KIP-320), and reports a
        truncated log as a position outside of it: see `restart`. What is read twice is ignored.
        """
        for key, target in list(self._to_validate.items()):
            try:
                self._reading.seek(target)
            except KafkaException as exc:
                # It has not begun to fetch there.
                log.debug("%s/%d is not validated yet: %s", *key, error_text(exc))
                return
            del self._to_validate[key]

    def _update_copartitioned(self) -> None:
        """Begin or stop reading retry partitions after a topic's count has changed.

        Not in a silence: their source partitions may be others' by now, and they with them.
        """
        came, gone = self._copartitioned.changed()
        self._drop(gone)
        if came:
            topics = {partition.topic for partition in came}
            self._learn(topics)
            self._reading.learn(topics)
            self._admit(came, self._reading.follow)

    def _drop(self, gone: list[TopicPartition]) -> None:
        """Stop reading retry partitions although their source partitions are still here.

        Nothing is committed: the topic was deleted, or another member reads the partition.
        """
        if gone:
            self._report_deleted(gone)
            self._withdraw(gone, self._listener.on_lost)
            self._reading.forget(gone)

    def _report_deleted(self, partitions: list[TopicPartition]) -> None:
        """Report the deleted retry topics among these: no other member continues there."""
        deleted = [p for p in partitions if self._is_deleted(p)]
        if not deleted:
            return
        ends = [(Partition(p.topic, p.partition), self.last_end(p)) for p in deleted]
        for partition, _ in ends:
            del self._began[partition], self._ids[partition]
        self._late.forget(deleted)
        self._commits.forget(deleted)
        self._listener.on_deleted(ends)

    def _is_deleted(self, partition: TopicPartition) -> bool:
        topic = partition.topic
        gone = self._copartitioned.deleted(topic) or self._topic_ids.gone(topic)
        return gone and parse_topic(topic) is not None and (topic, partition.partition) in self

    def last_end(self, partition: TopicPartition) -> int:
        """The last known end of a log, from a fetch or from a request for a paused partition."""
        looked = self._topic_ids.ends.get((partition.topic, partition.partition), -1)
        return max(looked, self._reading.known_end(partition))

    def _check_standby(self) -> None:
        """Report an empty assignment once the group has admitted the member without partitions."""
        now_s = time.monotonic()
        if now_s < self._spare_look_s:
            return
        self._spare_look_s = now_s + SPARE_LOOK_S
        # The group admits a member first and assigns a moment later: only the second check counts.
        before, self._admitted = self._admitted, admitted(self._consumer.consumer_group_metadata())
        if before and self._admitted:
            self._joined = True
            self.assignment_count += 1
            self._announce([])

    def restart(self, topic: str, partition: int, wanted: int | None) -> None:
        """Go on after the fetch position fell outside the log.

        Before the log's start: go on there; records read before are still handled. Beyond its end:
        the topic was truncated, so everything in it is read in a new epoch, late rather than lost;
        running handlers may finish and are committed first.

        Raises:
            TopicReplaced: the topic was deleted and created anew.
        """
        self._topic_ids.learn({topic})
        low, high = log_range(self._reading.reads(topic), topic, partition)
        target = TopicPartition(topic, partition, low)
        if wanted is not None and 0 <= wanted < low:
            if wanted < self._began[topic, partition]:
                # Reported twice, or sought before the listener knew: go on at the same position.
                self.reassign(self._whereabouts([target]))
                return
            log.error(
                "%s/%d: retention has removed unread records, %d to %d; going on at %d",
                topic, partition, wanted, low - 1, low,
            )  # fmt: skip
            self.reassign([target])
            self._began[topic, partition] = low
            # Behind an open transaction of somebody else there may be confirmed records.
            ends = self._topic_ids.log_ends([(topic, partition)], ENDS_S)
            end = max(high, ends.get((topic, partition), high))
            self._listener.on_gone(Partition(topic, partition), low, end)
            return
        log.error(
            "%s/%d: position %s is outside the log (%d to %d): the topic was truncated; reading it "
            "from its start, %d",
            topic, partition, wanted, low, high, low,
        )  # fmt: skip
        topic_id = self._ids[topic, partition]
        self._withdraw([target], self._listener.on_revoked)
        self._move([target])
        start = StartPosition(topic, partition, low, False, topic_id=topic_id, log_end=high)
        self._announce([start])

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

    def go_on_at(self, target: TopicPartition) -> None:
        """Fetch a paused partition again, from its next unread position."""
        target = self._epochs.with_epoch(target)
        self._reading.resume([target])
        try:
            self._reading.seek(target)
        except KafkaException:
            self.reassign([target])

    def reassign(self, targets: list[TopicPartition]) -> None:
        """Read partitions from other positions when the client refuses to seek.

        It refuses after an error has stopped its fetches; it accepts a new assignment.
        """
        if self._incremental:
            self._reading.move(targets)
            return
        moved = {(p.topic, p.partition) for p in targets}
        rest = [*self._whereabouts(self.partitions()), *self._late.partitions()]
        kept = [p for p in rest if (p.topic, p.partition) not in moved]
        self._reading.move_beside(targets, kept)

    def _whereabouts(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next positions; before the first record, the positions at which reading began."""
        return [
            TopicPartition(p.topic, p.partition, max(p.offset, self._began[p.topic, p.partition]))
            for p in self._reading.position(partitions)
        ]
