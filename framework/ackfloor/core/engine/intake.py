"""Intake: assign and revoke, skip on restart, and registering the records that were polled.

A record of a source topic is queued as soon as it is read. A record of a retry tier waits in memory
until its `not_before` (`redeliveries`); the tier partition's flow limit bounds how many wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ackfloor.core.acks.gap_set import GapSet, MetadataRefused, gap_set_of
from ackfloor.core.acks.leader_epochs import leader_epoch
from ackfloor.core.messages.events import (
    MetadataIgnored,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordsDeleted,
    RecordsLost,
    RecordsReceived,
    RecordsSkipped,
)
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.records.envelope import Envelope, read_envelope
from ackfloor.core.records.record import Now, Record, StartPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery, first_deliveries
from ackfloor.core.scheduling.crash_suspects import Suspects
from ackfloor.core.scheduling.quarantined_keys import Quarantines
from ackfloor.core.scheduling.redeliveries import Redeliveries, due_s
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState

_NOTHING = Envelope()


class Intake:
    """From assignment and poll to the handlers' queues."""

    __slots__ = (
        "_awaiting",
        "_orphans",
        "_outbox",
        "_quarantines",
        "_redeliveries",
        "_state",
        "_suspects",
        "lost",
    )

    def __init__(
        self,
        state: WorkerState,
        outbox: Outbox,
        suspects: Suspects,
        redeliveries: Redeliveries,
        quarantines: Quarantines,
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._suspects = suspects
        self._redeliveries = redeliveries
        self._quarantines = quarantines
        #: Records that were read before their partition's retry partitions were known, or before
        #: the end of the transaction that wrote them.
        self._awaiting: dict[Assignment, list[TrackedDelivery]] = {}
        #: Partitions of deleted topics with open records -> whether their waits were ended.
        self._orphans: dict[Assignment, bool] = {}
        #: Deleted topic -> how many records were lost with it.
        self.lost: dict[str, int] = {}

    def assign(self, starts: Sequence[StartPosition], now: Now) -> None:
        """Partitions came: each gets a new epoch and a new tracker."""
        state = self._state
        came = tuple(TopicPartition(start.topic, start.partition) for start in starts)
        stale = [key for key in came if tuple(key) in state.assignments]
        if stale:
            # No revoke was reported: end the old assignment before the new one starts.
            self.drop(stale, lost=True)
        for start in starts:
            route = state.routes[start.topic]
            state.epoch += 1
            restored = self._restored(start)
            assignment = Assignment(
                start.topic,
                start.partition,
                state.epoch,
                start.position - start.lost,
                handler=state.handlers[route.handler],
                source_topic=route.source_topic,
                tier_s=route.tier_s,
                stats=state.stats_of(route.source_topic, route.handler),
                inbox=state.inbox,
                clock=state.clock,
                now_ms=now.wall_ms,
                limits=state.flow.limits,
                restored=restored,
                topic_id=start.topic_id,
                leader_epoch=start.leader_epoch,
            )
            self._note_commit(assignment, start, restored, now)
            assignment.inherited_until = _inherited_until(start, restored)
            state.assignments[start.topic, start.partition] = assignment
            self._lose(assignment, start.position)
            self._suspects.assigned(start.topic, start.partition, start.position)
            self._await_tiers(assignment, start, now)
        state.forget_shares()
        state.flow.look_again()
        state.events.append(PartitionsAssigned(came))

    def _note_commit(
        self, assignment: Assignment, start: StartPosition, restored: GapSet | None, now: Now
    ) -> None:
        """Note what the group has committed of a partition that came."""
        if not start.committed:
            self._state.commits.hurry()
            return
        assignment.commit.position = start.position
        if not start.topic_id or (start.metadata and restored is None):
            # Its metadata can't be used here: don't replace it at once.
            assignment.commit.sent_s = now.mono_s

    def _await_tiers(self, assignment: Assignment, start: StartPosition, now: Now) -> None:
        """Where keys are quarantined, nothing of a partition starts before its retry partitions
        are here."""
        if not assignment.handler.rules.quarantines:
            return
        assignment.log_end, assignment.others_unread = start.log_end, start.others
        began = self._quarantines.assigned(assignment, start, now)
        # Source partitions last: what they have may be a copy of what is in a retry partition.
        for each in sorted(began, key=lambda one: one.tier_s is None):
            if read := self._awaiting.pop(each, None):
                self._enter(each, read, sum(d.size for d in read), now)

    def gone(self, partition: TopicPartition, position: int, end: int) -> None:
        """The log goes from `position` to `end` now: what was not read below it never comes."""
        assignment = self._state.assignments.get((partition.topic, partition.partition))
        if assignment is None or not self._lose(assignment, position):
            return
        if assignment.handler.rules.quarantines:
            self._quarantines.removed(assignment, end)

    def _lose(self, assignment: Assignment, position: int) -> int:
        lost = assignment.tracker.lose(position)
        self._state.flow.look_again()
        if lost:
            self._state.events.append(RecordsLost(assignment.topic, assignment.partition, lost))
        return lost

    def deleted(self, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """The topics of these partitions were deleted, and ended there as far as is known.

        What was read of them is still here, and is handled when it is due: nobody else has it.
        """
        counts: dict[str, tuple[int, int]] = {}
        for partition, end in ends:
            assignment = self._state.assignments.get((partition.topic, partition.partition))
            if assignment is None or assignment.stopping:
                continue
            lost, kept = counts.get(partition.topic, (0, 0))
            lost += assignment.tracker.lose(end)
            counts[partition.topic] = lost, kept + len(assignment.tracker.open)
            assignment.orphaned = True
            assignment.commit.in_doubt = False
            assignment.commit.outstanding = assignment.commit.transacting
            self._state.faults.clear("commit", (partition.topic, partition.partition))
            self._orphans[assignment] = False
            if assignment.handler.rules.quarantines:
                self._quarantines.deleted(assignment)
        self._state.flow.look_again()
        for topic, (lost, kept) in counts.items():
            self._report_deleted(topic, lost, kept)

    def _report_deleted(self, topic: str, lost: int, kept: int) -> None:
        if lost:
            self.lost[topic] = self.lost.get(topic, 0) + lost
        if lost or kept:
            self._state.events.append(RecordsDeleted(topic, lost, kept))

    def _drop_finished_orphans(self) -> None:
        """Forget the partitions of deleted topics of which everything is handled."""
        done = [a for a in self._orphans if a.closed or not a.tracker.open]
        for assignment in done:
            del self._orphans[assignment]
        left = [TopicPartition(a.topic, a.partition) for a in done if not a.closed]
        if left:
            self.drop(left, lost=False)

    def hasten(self, now: Now) -> bool:
        """Make records of deleted topics due: the worker ends, and no other worker has them.

        Returns whether any are left.
        """
        self._drop_finished_orphans()
        for assignment, hastened in self._orphans.items():
            if not hastened:
                # Once: a failure after that waits as usual.
                self._orphans[assignment] = True
                assignment.waiting.hasten(now.mono_s)
            self._redeliveries.release(assignment, assignment.handler.retry_room(), now)
        return bool(self._orphans)

    def abandon_orphans(self) -> None:
        """The worker exits: what is left of deleted topics is lost with it."""
        self._drop_finished_orphans()
        lost: Counter[str] = Counter()
        for assignment in self._orphans:
            lost[assignment.topic] += len(assignment.tracker.open)
        for topic, count in lost.items():
            self._report_deleted(topic, count, 0)
        self.drop([TopicPartition(a.topic, a.partition) for a in self._orphans], lost=False)
        self._orphans.clear()

    def _restored(self, start: StartPosition) -> GapSet | None:
        """The gap set of the last commit; None where it has none or it is rejected."""
        if not start.metadata:
            return None
        try:
            return gap_set_of(start)
        except MetadataRefused as exc:
            self._state.events.append(
                MetadataIgnored(start.topic, start.partition, start.position, str(exc))
            )
            return None

    def drop(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Partitions are gone: late answers for them are stale."""
        left: list[TopicPartition] = []
        gone: list[Assignment] = []
        open_count = 0
        for key in partitions:
            assignment = self._state.assignments.pop((key.topic, key.partition), None)
            if assignment is None:
                continue
            left.append(key)
            open_count += len(assignment.tracker.open)
            self._state.faults.clear("commit", (key.topic, key.partition))
            self._close(assignment)
            self._awaiting.pop(assignment, None)
            gone.append(assignment)
        self._quarantines.dropped(gone)
        self._outbox.forget_closed()
        self._suspects.forget_closed()
        for handler in self._state.handlers.values():
            handler.forget_closed()
        self._state.forget_shares()
        self._state.balance()
        self._state.events.append(PartitionsRevoked(tuple(left), lost, open_count))

    def _close(self, assignment: Assignment) -> None:
        assignment.stopping = assignment.closed = True
        open_ = assignment.tracker.open.values()
        self._state.flow.sub(len(open_), sum(delivery.size for delivery in open_))
        handler = assignment.handler
        handler.outputs_held -= assignment.outputs_held
        for delivery in open_:
            # In this order: an answer claims first and looks at `closed` second.
            if handler.rules.by_hand and delivery.started_s:
                delivery.claim()
            assignment.end(delivery)
        assignment.waiting.clear()
        handler.lanes.drop(assignment.topic, assignment.partition)

    def polled(self, records: Sequence[Record], now: Now) -> None:
        """Records were read: register them as open and dispatch what is due."""
        topic, partition = "", -1
        run: list[Record] = []
        for record in records:
            if record.partition() != partition or record.topic() != topic:
                if run:
                    self._admit(topic, partition, run, now)
                topic, partition, run = record.topic(), record.partition(), []
            run.append(record)
        if run:
            self._admit(topic, partition, run, now)
        self._state.rebalance()

    def _admit(self, topic: str, partition: int, records: Sequence[Record], now: Now) -> None:
        """Register consecutive records of one partition."""
        assignment = self._state.assignments.get((topic, partition))
        if assignment is None or assignment.stopping:
            return
        if assignment.rewound:
            if assignment.paused:
                # Fetched before the pause was: it comes again, in its order.
                return
            assignment.rewound = False
        offsets = [record.offset() for record in records]
        sizes = list(map(len, records))
        read = first_deliveries(assignment, records, offsets, sizes, now.mono_s)
        assignment.leader_epochs.note(read)
        tracker = assignment.tracker
        position = tracker.position
        if tracker.restored:
            batch = self._without_settled(assignment, read)
        else:
            batch = tracker.register(offsets, read)
        if not batch:
            self._state.flow.look_again()
            return
        size = sum(sizes) if batch is read else sum([d.size for d in batch])
        tier = assignment.tier_s is not None
        self._state.flow.add(len(batch), size, tracker.position - position, tier=tier)
        assignment.open_bytes += size
        self._state.events.append(
            RecordsReceived(
                assignment.source_topic,
                assignment.partition,
                assignment.handler.rules.name,
                len(batch),
                size,
                tier,
            )
        )
        if assignment.awaited or assignment in self._awaiting or self._outbox.leads_to(assignment):
            self._awaiting.setdefault(assignment, []).extend(batch)
        else:
            self._enter(assignment, batch, size, now)

    def _enter(
        self, assignment: Assignment, batch: Sequence[TrackedDelivery], size: int, now: Now
    ) -> None:
        """Dispatch records that are due, and let the others wait."""
        handler = assignment.handler
        if assignment.tier_s is None:
            if handler.rules.quarantines:
                batch = self._quarantines.arrived(assignment, batch, now)
            if batch:
                self._dispatch(handler, batch, now)
            return
        times_s: list[float] = []
        if handler.rules.quarantines:
            batch = self._quarantines.read(assignment, batch, now)
            times_s = [due_s(d, d.envelope or _NOTHING, now) for d in batch]
            size = sum([d.size for d in batch])
        else:
            for delivery in batch:
                envelope = delivery.envelope = read_envelope(delivery.headers)
                times_s.append(due_s(delivery, envelope, now))
        assignment.waiting.put_all(times_s, batch, size)
        self._state.waiting[assignment] = None
        self._redeliveries.release(assignment, handler.retry_room(), now)

    def _without_settled(
        self, assignment: Assignment, read: Sequence[TrackedDelivery]
    ) -> Sequence[TrackedDelivery]:
        """Skip the records that an earlier assignment settled, and register what is between."""
        tracker = assignment.tracker
        kept: list[TrackedDelivery] = []
        skipped = 0
        for delivery in read:
            if leader_epoch(delivery) > assignment.restored_epoch:
                # Written after the log was truncated, like all that follows: other records at
                # the offsets of those that were settled.
                tracker.restored.clear()
            if tracker.was_settled(delivery.record_offset):
                skipped += tracker.skip(delivery.record_offset)
            elif tracker.register([delivery.record_offset], [delivery]):
                kept.append(delivery)
        if skipped:
            self._state.events.append(
                RecordsSkipped(
                    assignment.source_topic,
                    assignment.partition,
                    assignment.handler.rules.name,
                    skipped,
                )
            )
        return kept

    def _dispatch(self, handler: HandlerState, batch: Sequence[TrackedDelivery], now: Now) -> None:
        if self._suspects.watching:
            batch = self._suspects.sift(handler, batch, now)
        if batch:
            self._state.dispatch(handler, batch)

    def tick(self, now: Now) -> None:
        """Go on with what was read too early; forget the deleted topics that are done."""
        for assignment in list(self._awaiting):
            if not (assignment.awaited or self._outbox.leads_to(assignment)):
                read = self._awaiting.pop(assignment)
                self._enter(assignment, read, sum(d.size for d in read), now)
        if self._orphans:
            self._drop_finished_orphans()


def _inherited_until(start: StartPosition, restored: GapSet | None) -> int:
    """Up to where an earlier owner of a partition may have read it; 0 where nobody committed."""
    if not (start.committed or start.lost):
        return 0
    if start.log_end is not None:
        return start.log_end
    # What it settled above its floor it had read, and all that is below.
    return restored.runs[-1][1] if restored is not None and restored.runs else 0
