"""Assignment and HandlerState: the mutable state the engine owns.

An `Assignment` is one partition for one epoch. A partition that is revoked and given back is a
new assignment with a new epoch and a new tracker: nothing of the old one can reach the new
one, because every delivery points at the assignment it came from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from sys import maxsize
from typing import Literal

from ackfloor.core.acks.gap_set import GapSet, topic_hash
from ackfloor.core.acks.leader_epochs import UNKNOWN, LeaderEpochs
from ackfloor.core.acks.partition_commits import PartitionCommits
from ackfloor.core.acks.tracker import AckTracker
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.handler_breaker import Circuit, WithheldRecords
from ackfloor.core.queues.batch_buffer import BatchBuffer
from ackfloor.core.queues.due_queue import DueQueue
from ackfloor.core.queues.fair_order import FairOrder, Key
from ackfloor.core.queues.flow_limits import FlowLimits, PartitionGates
from ackfloor.core.queues.handler_queue import HandlerQueue
from ackfloor.core.queues.handler_rate import HandlerRate
from ackfloor.core.queues.lanes import Lanes
from ackfloor.core.queues.usual_time import UsualTime
from ackfloor.core.records.output import Output
from ackfloor.core.records.record import ParkedRecord
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import BEHIND, TAKES_ROOM, TrackedDelivery

#: What becomes of what is parked behind a record that is dead-lettered.
AfterDeadLetter = Literal["continue", "dead_letter", "hold"]


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """What the engine must know of a handler; replaced whole when settings are reloaded.

    Attributes:
        name: unique in the app; header, metric label and settings key.
        ordering: "unordered", "key" or "partition".
        concurrency: how many deliveries run at once.
        consume_timeout_s: from handler start to answer, None for no limit.
        policy: the retry policy.
        manual: answers come through the delivery, not by return.
        max_extend_s: how far after its start a delivery's deadline may be moved.
        in_place: a failed record is delivered again here, and its lane waits for it
            (`on_failure="block"`); otherwise it is parked in a retry topic.
        quarantines: a failed record is parked, and later ones of its key are parked behind it
            (`on_failure="quarantine"`).
        after_dead_letter: what becomes of those when it is dead-lettered.
        breaker: when its failures no longer follow the policy.
        killable: its handlers run in processes that are killed at the deadline; the delivery ends
            when its process has been seen dead, and not before.
        batch: how many records one call takes at most; None where it takes a single one.
        batch_wait_s: how long an incomplete batch waits since its first record was read.
        fair_key: what its records are grouped by, so that noisy and hanging keys wait for others
            (see `fair_order`); None where they are not. Not for batches, nor in partition order.
        rate_per_s: how many of its deliveries the whole group may start, in records a second; None
            for no limit.
        exactly_once: what it publishes through a delivery is written in one transaction with what
            settles the record; needs an outbox that writes in transactions.
        make_output: makes a record to write of what is published: topic, value, key, headers and
            partition.
    """

    name: str
    ordering: str = "unordered"
    concurrency: int = 64
    consume_timeout_s: float | None = 60.0
    policy: RetryPolicy = RetryPolicy()
    manual: bool = False
    max_extend_s: float | None = None
    in_place: bool = False
    quarantines: bool = False
    after_dead_letter: AfterDeadLetter = "continue"
    breaker: CircuitBreaker = CircuitBreaker()
    killable: bool = False
    batch: int | None = None
    batch_wait_s: float = 0.2
    fair_key: Callable[[TrackedDelivery], Key | None] | None = None
    rate_per_s: float | None = None
    exactly_once: bool = False
    make_output: Callable[[str, object, object, object, int | None], Output] | None = None

    @property
    def by_hand(self) -> bool:
        """Whether a delivery can be answered through itself."""
        return self.manual or self.batch is not None


class HandlerState:
    """One handler's rules, its lanes, queue and circuit breaker, and what stops it."""

    __slots__ = (
        "asked_until_s",
        "batch_buffer",
        "behind",
        "circuit",
        "held_reason",
        "held_until_s",
        "lanes",
        "open_retries",
        "outputs_held",
        "outputs_limit",
        "paused_reason",
        "paused_until_s",
        "queue",
        "rate",
        "resting",
        "rests_in_pause",
        "rules",
        "share",
        "suspect",
        "timeout_since_s",
        "usual",
    )

    def __init__(self, rules: HandlerRules) -> None:
        self.rules = rules
        # A slot may be busy for longer than with its record, or in another process: then it is not
        # free when its record ends.
        self.lanes = Lanes(singly=not (rules.by_hand or rules.killable))
        #: Nothing of it starts until then (monotonic seconds; infinity until further notice): the
        #: later of the two below. 0 where it is in no pause.
        self.held_until_s = 0.0
        #: It asked for a pause itself until then, and why; 0 where it did not.
        self.asked_until_s, self.held_reason = 0.0, ""
        #: An operator paused it until then, and why; 0 where none did.
        self.paused_until_s, self.paused_reason = 0.0, ""
        #: How long its deliveries usually run.
        self.usual = UsualTime()
        #: What may start, and no executor has.
        self.queue = self._queue()
        self.circuit = Circuit()
        #: The part of its topics' partitions that this worker owns; None: to be counted anew.
        self.share: float | None = None
        #: How many of its deliveries may start, where it has a rate for the group.
        self.rate = None if rules.rate_per_s is None else HandlerRate()
        #: It is in a long pause, for which fetching stops.
        self.rests_in_pause = False
        #: When the consume timeout in force was set, if it was while running (monotonic seconds).
        self.timeout_since_s = 0.0
        #: Nothing more is fetched for it, and no redelivery released.
        self.resting = False
        #: Redeliveries, from retry tiers or in place, that are dispatched and not answered, but for
        #: those that wait in a lane behind another: they take no slot of their own.
        self.open_retries = 0
        #: Bytes of outputs that are not written, and at how many it is given nothing more.
        self.outputs_held, self.outputs_limit = 0, 1
        #: Records that wait for a batch, where it takes batches.
        self.batch_buffer = (
            None if rules.batch is None else BatchBuffer(shared=rules.ordering != "partition")
        )
        #: Of batches that failed in a lane: retries in place that are not the head of it, and when
        #: they are due (monotonic seconds).
        self.behind: dict[TrackedDelivery, float] = {}
        #: The suspect of a crash that runs now, or is about to.
        self.suspect: TrackedDelivery | None = None

    def _queue(self) -> HandlerQueue:
        rules = self.rules
        return HandlerQueue(
            self.lanes,
            ordered=rules.ordering != "unordered",
            batches=rules.batch is not None,
            fair=self._fair_order(),
        )

    def _fair_order(self) -> FairOrder | None:
        fair_key = self.rules.fair_key
        return None if fair_key is None else FairOrder(fair_key, self.usual)

    def group_anew(self) -> None:
        """Its rules group records by something else, or no longer: what waits apart is queued.

        Have the executor give back what it has not started: it may have been given that to go last.
        """
        self.queue.gather()
        self.queue.fair = self._fair_order()

    def limit_anew(self) -> None:
        """Its rules have another rate, or none. Where it had none, have the executor give back what
        it has not started: no token was taken for it."""
        if self.rules.rate_per_s is None:
            self.rate = None
        elif self.rate is None:
            self.rate = HandlerRate()
        else:
            self.rate.changes()

    def forget_shares(self) -> None:
        """The worker has other partitions, or their topics more: its parts are counted anew."""
        self.share = None
        if self.rate is not None:
            self.rate.changes()

    def forget_closed(self) -> None:
        """Partitions were dropped: what waits here of them is gone."""
        self.queue.forget_closed()
        if self.batch_buffer is not None:
            self.batch_buffer.forget_closed()
        if self.behind:
            self.behind = {d: due_s for d, due_s in self.behind.items() if not d.closed}

    @property
    def held(self) -> bool:
        """Whether nothing starts by itself: in a pause, or while its breaker is not closed."""
        return bool(self.held_until_s) or self.circuit.breaker.is_open

    @property
    def outputs_full(self) -> bool:
        """Whether it holds so many bytes of outputs that more must be written first."""
        return self.outputs_held >= self.outputs_limit

    def redelivers(self, delivery: TrackedDelivery) -> None:
        """A redelivery is about to be dispatched."""
        delivery.retrying = TAKES_ROOM
        self.open_retries += 1

    def redelivered(self, delivery: TrackedDelivery) -> None:
        """A redelivery has ended: it takes no room any more."""
        self.gives_room(delivery)
        delivery.retrying = 0

    def gives_room(self, delivery: TrackedDelivery) -> None:
        """A redelivery takes no slot of its own: it has ended, or waits behind another."""
        if delivery.retrying == TAKES_ROOM:
            delivery.retrying = BEHIND
            self.open_retries -= 1

    def retry_room(self) -> int:
        """How many more redeliveries may be dispatched.

        At most half of the slots: what fails again and again must not take every slot from
        what has not been tried yet. None in a long pause; and while the breaker is not closed,
        the breaker decides which are tried.
        """
        if self.rests_in_pause or self.circuit.breaker.is_open:
            return 0
        if self.outputs_full:
            # None is given but the oldest of its partition, which must not wait for others' room.
            return maxsize
        room = self._half() - self.open_retries - self._hanging()
        if self.rate is None:
            return room
        # Nor every token.
        return min(room, self.rate.retry_room(others_wait=bool(self.queue.items)))

    def hanging_room(self) -> int:
        """How many first deliveries of hanging keys may have a slot: a quarter, and together with
        redeliveries no more than half."""
        return min(self.quarter, self._half() - self.open_retries)

    @property
    def quarter(self) -> int:
        """A quarter of the slots, at least one."""
        return max(1, self.rules.concurrency // 4)

    def _half(self) -> int:
        return max(1, self.rules.concurrency // 2)

    def _hanging(self) -> int:
        fair = self.queue.fair
        return 0 if fair is None or not fair.waiting else fair.hanging_in_flight()


class AckStats:
    """What was handled of one source topic since the last events were made of it."""

    __slots__ = (
        "acked",
        "attempts",
        "handler",
        "late",
        "late_answers",
        "lateness_s",
        "noted",
        "replays_failed",
        "replays_handled",
        "topic",
    )

    def __init__(self, topic: str, handler: str) -> None:
        self.topic = topic
        self.handler = handler
        self.acked: list[TrackedDelivery] = []
        #: How many of these the handler's breaker has counted.
        self.noted = 0
        #: Of redeliveries: attempt number, and seconds from due time to handler start.
        self.attempts: list[int] = []
        self.lateness_s: list[float] = []
        #: Of replayed dead letters: how their first deliveries ended.
        self.replays_handled = 0
        self.replays_failed = 0
        self.late = 0
        #: One entry for each manual answer that came too late; any thread appends.
        self.late_answers: deque[None] = deque()


class Assignment:
    """One partition during one epoch.

    Attributes:
        lanes_topic: the topic that its lanes are named by: where its handler quarantines, a retry
            topic's records are in the lanes of its source topic.
        tier_s: the nominal delay in seconds where the topic is a retry tier.
        started_at: its first position, and the leader epoch that the commit said of it.
        restored_epoch: the newest leader epoch that restored runs were settled in.
        mark: the start of its records' marks in flight (runtime/supervision/in_flight_memory.py).
        parking: records written to a retry or dead-letter topic whose report is outstanding.
        refused: those of which the write was refused, and is planned again.
        held, held_bytes: records that wait in lanes behind one that failed, and the bytes of their
            values.
        open_bytes: bytes of the open records' values, and of the outputs that are held for them.
        outputs_held: bytes of these outputs alone.
        paused: it is not read at the moment.
        rewound: it is read from an earlier position when it is read again; see state/rewinds.py.
        orphaned: its topic was deleted: nothing more is read or committed, what was read is
            handled.
        awaited: retry topics of which this partition must be here before anything starts; see
            scheduling/quarantined_keys.py. The same for all partitions that wait for each other.
        log_end: of a source topic whose handler quarantines: its log's end when it was assigned, as
            far as it is known.
        inherited_until: records below it may have failed before, with an earlier owner of the
            partition; 0 where it had none.
        others_unread: records of a retry topic that are in no key's order, and are to be read.
        superseded: offset -> record, of a retry topic, of which a newer copy was found.
        parked_before: records of a source topic of which a copy was found in a retry topic: their
            offsets, keys, and timestamps as far as these are known.
        parked_until: the highest of these offsets.
        topic_id: Kafka's, "" where it is not known; `topic_hash` is what a commit has of it.
        stopping: no further delivery may start (revoke or shutdown is under way).
        closed: the assignment has ended: late answers are stale.
    """

    __slots__ = (
        "awaited",
        "clock",
        "closed",
        "commit",
        "epoch",
        "floor_advanced_ms",
        "gates",
        "handler",
        "held",
        "held_bytes",
        "inbox",
        "inherited_until",
        "lanes_topic",
        "last_floor",
        "leader_epochs",
        "log_end",
        "mark",
        "open_bytes",
        "orphaned",
        "others_unread",
        "outputs_held",
        "parked_before",
        "parked_until",
        "parking",
        "partition",
        "paused",
        "refused",
        "restored_epoch",
        "rewound",
        "source_topic",
        "started_at",
        "stats",
        "stopping",
        "superseded",
        "tier_s",
        "topic",
        "topic_hash",
        "topic_id",
        "tracker",
        "waiting",
        "withheld",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        epoch: int,
        position: int,
        *,
        handler: HandlerState,
        source_topic: str,
        tier_s: float | None,
        stats: AckStats,
        inbox: deque[TrackedDelivery],
        clock: Callable[[], float],
        now_ms: int,
        limits: FlowLimits | None = None,
        restored: GapSet | None = None,
        topic_id: str = "",
        leader_epoch: int = UNKNOWN,
    ) -> None:
        self.topic, self.partition, self.epoch = topic, partition, epoch
        self.handler = handler
        self.source_topic = source_topic
        self.lanes_topic = source_topic if handler.rules.quarantines else topic
        self.tier_s = tier_s
        self.awaited: set[str] = set()
        self.log_end: int | None = None
        self.inherited_until = 0
        self.others_unread = 0
        self.superseded: dict[int, ParkedRecord] = {}
        self.parked_before: set[tuple[int, bytes | int | None, int | None]] = set()
        self.parked_until = -1
        self.tracker: AckTracker[TrackedDelivery] = AckTracker(
            position, restored.runs if restored else ()
        )
        self.restored_epoch = restored.leader_epoch if restored else UNKNOWN
        self.leader_epochs = LeaderEpochs()
        self.started_at = position, leader_epoch
        self.topic_id = topic_id
        self.topic_hash = topic_hash(topic_id)
        self.inbox = inbox
        self.clock = clock
        self.mark = self.parking = self.refused = 0
        #: What is not due, in a retry topic, in its place or withheld.
        self.waiting = DueQueue()
        #: Those of them that the circuit breaker withholds.
        self.withheld = WithheldRecords()
        self.held = self.held_bytes = 0
        self.open_bytes = self.outputs_held = 0
        self.gates = PartitionGates(limits or FlowLimits(), tier=tier_s is not None)
        self.stats = stats
        self.paused = False
        self.rewound = False
        self.orphaned = False
        self.stopping = False
        self.closed = False
        self.commit = PartitionCommits()
        self.last_floor = position
        self.floor_advanced_ms = now_ms

    def gap_set(self, settling: Collection[int] = ()) -> GapSet:
        """What a commit says now: the floor, and what is settled above it.

        Args:
            settling: open offsets to take for settled.
        """
        tracker = self.tracker
        floor = tracker.floor_without(settling)
        runs = tracker.gap_runs(settling)
        beyond = bool(tracker.restored) and tracker.restored[-1][1] > tracker.position
        # As long as some of the restored runs count, nothing newer than they are has been read.
        highest = max(tracker.highest_settled, *settling) if settling else tracker.highest_settled
        epoch = self.restored_epoch if beyond else self.leader_epochs.at(highest)
        return GapSet(floor, runs, self.topic_hash, epoch)

    def leader_epoch_at(self, floor: int) -> int:
        """The leader epoch of the log at a floor, `UNKNOWN` where that would be a guess.

        It is that of the record there, or of the one just below. What else is below, control
        records and gaps, may be of a newer epoch than the last record that was read, and then the
        broker would say of a whole log that it was truncated.
        """
        if floor < self.tracker.position or floor == self.leader_epochs.read_to:
            return self.leader_epochs.at(floor)
        position, epoch = self.started_at
        return epoch if floor == position else UNKNOWN

    def waits_in_tier(self) -> tuple[int, int]:
        """Records that wait for their time in a retry topic, and the bytes of their values."""
        if self.tier_s is None:
            return 0, 0
        return len(self.waiting) - len(self.withheld), self.waiting.size - self.withheld.size

    def end(self, delivery: TrackedDelivery) -> None:
        """End a delivery: whatever still comes for it is late, and it takes no slot.

        `Completions` does the same for what was answered, or has outlived its deadline.
        """
        delivery.closed = True
        if delivery.retrying:
            self.handler.redelivered(delivery)

    def floor(self, now_ms: int) -> int:
        """The floor, noting when it last moved."""
        floor = self.tracker.floor()
        if floor != self.last_floor:
            self.last_floor = floor
            self.floor_advanced_ms = now_ms
        return floor
