"""Engine: each record from poll to commit: dispatch, settle, park, commit.

Facts go in (assigned, polled, answered, published, committed, the time); commands and events
come out; the shell around it does what the commands say and reports back. The engine never
blocks, never reads a clock and never touches Kafka.

The life of a record: `polled` registers it as open and puts it on its handler's queue (`intake`),
`next_units` gives it to the executor (`scheduler`). Its delivery comes back through `answered`, or
`expire` ends it at its deadline (`completions`). Handled: the record is settled. Failed: it
is written to a retry tier or the DLQ, and only the delivery report of that write settles it
(`outbox`); or it stays where it is, holds its lane and is delivered again (`retry_in_place`).
Settling lets the floor move, and `tick` commits floors (`commit_schedule`).

Invariants (numbers of the contract; tests/framework/core/engine/test_engine_model.py holds them):

1  the committed position never passes a record that is not settled;
2  settled means handled, or confirmed in a retry or DLQ topic, or explicitly discarded;
3  the floor never goes back within one epoch;
4  a delivery ends once; whatever comes after `closed` was set is counted and changes nothing;
6  offsets that never arrive block nothing;
7  open count and bytes match the open records, and are zero after a partition is dropped;
8  in one lane at most one delivery runs, in offset order, across failures where they are
   retried in place;
9  a deadline is the start of the handler plus the timeout in force now, for what is in flight too;
10 whatever fails outside leaves the record open, is named as a fault, and is tried again.

Only the owner thread may call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.engine.completions import Completions
from ackfloor.core.engine.intake import Intake
from ackfloor.core.messages.commands import Command
from ackfloor.core.messages.events import CommitFailed, Event, PositionsCommitted
from ackfloor.core.messages.fault_causes import UNCONFIRMED, Identity, Trouble, identify
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.parking.parking import Parking
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.core.queues.flow_limits import FlowControl, FlowLimits
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.queues.lanes import Work
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.record import CommitPosition, Now, Record, StartPosition, TopicPartition
from ackfloor.core.records.redaction import NO_REDACTION, Redaction
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.batch_completions import Batches
from ackfloor.core.scheduling.breaker_control import Breakers
from ackfloor.core.scheduling.crash_suspects import Suspects
from ackfloor.core.scheduling.lane_orders import LaneOrders
from ackfloor.core.scheduling.pauses import Pauses
from ackfloor.core.scheduling.promotions import Promotions
from ackfloor.core.scheduling.quarantined_keys import Quarantines
from ackfloor.core.scheduling.redeliveries import Redeliveries
from ackfloor.core.scheduling.retry_in_place import InPlace
from ackfloor.core.scheduling.scheduler import Scheduler
from ackfloor.core.scheduling.withheld import Withheld
from ackfloor.core.state.assignment import Assignment, HandlerRules
from ackfloor.core.state.faults import Faults
from ackfloor.core.state.rule_changes import Reloaded, check
from ackfloor.core.state.worker_state import Route, WorkerState


class Engine:
    """The state of one worker and what may happen to it.

    Args:
        handlers: the rules of every handler of the app.
        routes: subscribed topic -> what it is; shared with the caller, who may add to it.
        parking: addresses and writes up parked records.
        limits: how much is held at once.
        inbox: where manual answers are posted (any thread appends; the owner drains).
        clock: monotonic seconds, given to deliveries for `extend`.
        commit_interval_s: seconds between commits.
        commit_count: settled records that bring a commit forward.
        transactional: parked records and the commits that settle them are written together.
        redaction: masks what exceptions and keys say, before any of it is shown.
    """

    def __init__(
        self,
        handlers: Iterable[HandlerRules],
        routes: Mapping[str, Route],
        parking: Parking,
        *,
        limits: FlowLimits,
        inbox: deque[TrackedDelivery],
        clock: Callable[[], float],
        commit_interval_s: float = 1.0,
        commit_count: int = 10_000,
        transactional: bool = False,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        self._state = WorkerState(
            handlers,
            routes,
            parking,
            limits=limits,
            inbox=inbox,
            clock=clock,
            commit_interval_s=commit_interval_s,
            commit_count=commit_count,
            redaction=redaction,
        )
        self._outbox = Outbox(self._state, transactional=transactional)
        self.suspects = Suspects(self._state, self._outbox)
        self._redeliveries = Redeliveries(self._state, self._outbox, self.suspects)
        self._in_place = InPlace(self._state, self._outbox)
        withheld = Withheld(self._state)
        self._quarantines = Quarantines(
            self._state, self._outbox, self.suspects, self._in_place, withheld
        )
        self._intake = Intake(
            self._state, self._outbox, self.suspects, self._redeliveries, self._quarantines
        )
        #: Operators' orders about records that wait in retry topics.
        self.promotions = Promotions(self._state, self._outbox)
        #: Operators' orders about lanes that wait for a record that failed.
        self.lane_orders = LaneOrders(self._state, self._outbox, self._quarantines)
        self._pauses = Pauses(self._state)
        self._breakers = Breakers(self._state, self._redeliveries)
        self._scheduler = Scheduler(self._state, self._breakers)
        self._batches = Batches(self._state, self._outbox, self._in_place, self._breakers, withheld)
        self._completions = Completions(
            self._state,
            self._outbox,
            self._in_place,
            self._breakers,
            withheld,
            self._batches,
            self._quarantines,
        )

    # What comes out.

    def take_commands(self) -> list[Command]:
        """The commands since the last call, in order."""
        if self._state.unbalanced:
            # Here, so that it is done once however many writes were confirmed.
            self._state.balance()
        commands, self._state.commands = self._state.commands, []
        return commands

    def take_events(self, now: Now) -> list[Event]:
        """The events since the last call, in order."""
        self._completions.report(now)
        events, self._state.events = self._state.events, []
        return events

    @property
    def state(self) -> WorkerState:
        """For reading: snapshots and tests."""
        return self._state

    @property
    def assignments(self) -> Mapping[tuple[str, int], Assignment]:
        """The partitions this worker owns, by (topic, partition)."""
        return self._state.assignments

    @property
    def flow(self) -> FlowControl:
        """The levels of open records."""
        return self._state.flow

    @property
    def faults(self) -> Faults:
        """What keeps records open."""
        return self._state.faults

    @property
    def transactional(self) -> bool:
        """Whether parked records are written in transactions."""
        return self._outbox.transactions is not None

    # Assign and revoke.

    def assign(self, starts: Sequence[StartPosition], now: Now) -> None:
        """Partitions came: each gets a new epoch and a new tracker."""
        self._intake.assign(starts, now)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Start no further delivery of these partitions; what runs may still end."""
        for key in partitions:
            assignment = self._state.assignments.get((key.topic, key.partition))
            if assignment is not None:
                assignment.stopping = True
                assignment.waiting.clear()
                assignment.withheld.clear()

    def final_positions(self, partitions: Iterable[TopicPartition]) -> tuple[CommitPosition, ...]:
        """What to commit last for partitions that are about to leave."""
        found = (self._state.assignments.get((k.topic, k.partition)) for k in partitions)
        return self._state.commits.final(a for a in found if a is not None)

    def unanswered_commits(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[CommitPosition, ...]:
        """What to commit now of those whose last commit has no clear answer yet.

        Their writes can't begin a transaction before.
        """
        found = (self._state.assignments.get((k.topic, k.partition)) for k in partitions)
        return self._state.commits.final(
            a for a in found if a is not None and (a.commit.outstanding or a.commit.in_doubt)
        )

    def gone(self, partition: TopicPartition, position: int, end: int) -> None:
        """Retention has removed what was to be read next; what was read is still here."""
        self._intake.gone(partition, position, end)

    def deleted(self, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """The topics of these partitions were deleted; what was read of them is still here."""
        self._intake.deleted(ends)

    def hasten(self, now: Now) -> bool:
        """The worker ends: start records of deleted topics now; returns whether some are left.

        Their other writes are tried again as well.
        """
        left = self._intake.hasten(now)
        if left:
            self._outbox.tick(now)
        return left

    def abandon_orphans(self) -> None:
        """The worker exits: report what is left of deleted topics as lost."""
        self._intake.abandon_orphans()

    def drop(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Partitions are gone: late answers for them are stale."""
        self._intake.drop(partitions, lost=lost)

    # Records in, deliveries back.

    def polled(self, records: Sequence[Record], now: Now) -> None:
        """Records were read: register them as open and dispatch what is due."""
        self._intake.polled(records, now)

    def passed(self, positions: Mapping[tuple[str, int], int]) -> None:
        """The consumer's own positions: they pass trailing records that never arrive.

        Not for a partition that is stopping: what is read then is not registered, so the
        consumer's position passes records that nobody has handled. Nor for one that was rewound,
        until the consumer reads from there.
        """
        for key, position in positions.items():
            assignment = self._state.assignments.get(key)
            if assignment is not None and not (assignment.stopping or assignment.rewound):
                assignment.tracker.passed(position)
                # Which widens its span, without anything being read.
                self._state.flow.look_again()

    def answered(self, deliveries: Iterable[TrackedDelivery], now: Now) -> None:
        """Apply the outcomes of deliveries."""
        self._completions.answered(deliveries, now)

    def unit_ended(self, handler: str, unit: Work | Batch, now: Now) -> None:
        """A slot has finished a work, or a batch's call has returned or was abandoned.

        Report the answers that were given before it first.
        """
        state = self._state.handlers[handler]
        if isinstance(unit, Work):
            # What is left of it is first in its lane again.
            lane = state.lanes.back(unit)
            if lane is not None:
                self._state.hand_out(state, lane)
            return
        self.answered(self._batches.call_ended(unit, now), now)
        state.queue.call_ended(unit)
        self._batches.resume_lanes(state, unit, now)

    def next_units(self, handler: str, queued: int, now: Now) -> Sequence[Unit]:
        """The next units for a handler's executor, which has not started `queued` of its units."""
        return self._scheduler.next_units(self._state.handlers[handler], queued, now)

    def counts_starts(self, handler: str) -> bool:
        """Whether it must be known what runs before `next_units`: a process tells when it has begun
        only where its executor is asked, and a rate counts what has not."""
        state = self._state.handlers[handler]
        return state.rate is not None and state.rules.killable

    def look_due(self, handler: str, now: Now) -> bool:
        """Whether what runs of a handler is to be looked at now; see `look`."""
        fair = self._state.handlers[handler].queue.fair
        return fair is not None and fair.look_due(now.mono_s)

    def look(self, handler: str, running: Iterable[TrackedDelivery], now: Now) -> bool:
        """Look at what occupies a handler's slots: which keys are noisy, and which hang.

        Returns whether its executor should give back what it has not started, for another order.
        """
        state = self._state.handlers[handler]
        fair, rules = state.queue.fair, state.rules
        return fair is not None and fair.look(
            running,
            rules.concurrency,
            now.mono_s,
            rules.consume_timeout_s,
            rationed=state.rate is not None and state.rate.lacking,
        )

    def next_last(self, handler: str, queued: int, now: Now) -> Sequence[Unit]:
        """The next units for slots that have nothing else; ask for `next_units` before."""
        return self._scheduler.next_last(self._state.handlers[handler], queued, now)

    def returned(self, handler: str, units: Sequence[Unit]) -> None:
        """An executor gave back what it has not started, in order."""
        self._scheduler.returned(self._state.handlers[handler], units)

    def hold(self, handler: str, duration_s: float, reason: str, now: Now) -> None:
        """A handler asked for a pause; its executor gives back what it has not started."""
        state = self._state.handlers[handler]
        self._breakers.paused(state)
        if state.rate is not None:
            state.rate.started_unseen()
        self._pauses.begin(state, duration_s, reason, now)

    def pause(self, handler: str, until_s: float, reason: str, now: Now) -> None:
        """An operator pauses a handler until a time (monotonic seconds; infinity for ever)."""
        self._pauses.pause(self._state.handlers[handler], until_s, reason, now)

    def resume(self, handler: str, now: Now) -> None:
        """An operator resumes a handler; a pause that it asked for itself goes on."""
        self._pauses.resume(self._state.handlers[handler], now)

    def counted(self, counts: Mapping[str, int]) -> None:
        """Topics have so many partitions now: shares of rates go by them."""
        self._state.counted(counts)

    @property
    def rationed(self) -> bool:
        """Whether all that waits for a slot waits for its handler's rate."""
        return self._scheduler.rationed()

    @property
    def in_question(self) -> bool:
        """Whether so many records failed in a row that `judge` is to be called."""
        return self._breakers.in_question

    def judge(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """Open the circuit breakers that no running delivery may keep closed."""
        self._breakers.judge(running, now)

    def force(
        self, handler: str, what: Forced | None, until_s: float, reason: str, now: Now
    ) -> None:
        """An operator forces a circuit breaker open or closed, or back to automatic (None)."""
        self._breakers.force(handler, what, until_s, reason, now)

    def resume_open(self, handler: str, failing: int, error: str, now: Now) -> None:
        """Start with a circuit breaker open, as it was in the worker that this one replaces."""
        self._breakers.resume(handler, failing, error, now)

    def expire(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """End the running deliveries whose deadline has passed; call it at `next_scan_s`."""
        self._completions.expire(running, now)

    @property
    def next_scan_s(self) -> float:
        """Monotonic seconds at which `expire` must be called next."""
        return self._completions.deadlines.next_scan_s

    # Reports from Kafka.

    def published(self, writes: Iterable[PendingWrite], now: Now) -> None:
        """The broker confirmed writes: their records are settled."""
        for write in writes:
            self._outbox.published(write, now)

    def publish_failed(self, write: PendingWrite, error: str, *, too_large: bool, now: Now) -> None:
        """A write failed: its record stays open, and the write is retried."""
        self._outbox.failed(write, error, too_large=too_large, now=now)

    def troubled(self, troubles: Mapping[str, Trouble], now: Now) -> None:
        """Replace what the brokers report: topic, the group or "brokers" -> problem."""
        lost = self._intake.lost
        current = {
            topic: trouble._replace(why=f"{trouble.why}, and {lost[topic]} records in it are lost")
            if topic in lost
            else trouble
            for topic, trouble in troubles.items()
        }
        self._state.faults.replace("kafka", current, now.wall_ms)
        self._outbox.troubled(troubles, now)

    def doubtful(self, now: Now) -> bool:
        """Whether a write was refused or is overdue, so that the brokers are asked why."""
        return self._outbox.doubtful(now)

    def transact(self, now: Now) -> None:
        """Begin a transaction if there are writes for one and none is under way."""
        if self._outbox.transactions is not None:
            self._outbox.transactions.begin(now)

    def transacting(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether one of these partitions is in the transaction under way."""
        found = (self._state.assignments.get((k.topic, k.partition)) for k in partitions)
        return any(a is not None and a.commit.transacting for a in found)

    def is_carried(self, partition: TopicPartition) -> bool:
        """Whether the transaction under way commits a partition or writes to it.

        Also one that was dropped since it began: it is assigned anew after the end.
        """
        transactions = self._outbox.transactions
        return transactions is not None and transactions.carries(partition)

    def transacted(self, transaction: Transaction, outcome: TransactionOutcome, now: Now) -> None:
        """A transaction has ended: its records are settled and its commit is made, or neither."""
        self._outbox.transacted(transaction, outcome, now)
        if outcome.committed:
            self.committed([(position, None) for position in transaction.positions], now)

    def committed(self, results: Iterable[tuple[CommitPosition, str | None]], now: Now) -> None:
        """A commit came back: for each position None, or why it was refused."""
        state, confirmed = self._state, 0
        for position, error in results:
            if not state.commits.answered(state.assignments, position, error):
                continue
            member = position.topic, position.partition
            if error is None:
                confirmed += 1
                state.faults.clear("commit", member)
            else:
                # Less of the gap set may fit than was assumed.
                state.flow.look_again()
                identity = identify(position.topic, error)
                state.faults.wait("commit", member, identity, error, now.wall_ms)
                state.events.append(CommitFailed(position.topic, position.partition, error))
        if confirmed:
            state.events.append(PositionsCommitted(confirmed))

    # Settings.

    def reload(self, reloaded: Reloaded, now: Now) -> None:
        """Apply other settings, also to deliveries in flight.

        Raises:
            ValueError: a handler is unknown, or something differs that can't change while
                records are in flight. Nothing was changed then.
        """
        state = self._state
        check(state.handlers, reloaded)
        for rules in reloaded.handlers:
            handler = state.handlers[rules.name]
            if handler.rules.consume_timeout_s != rules.consume_timeout_s:
                handler.timeout_since_s = now.mono_s
            grouped, limit = handler.rules.fair_key, handler.rules.rate_per_s
            handler.rules = rules
            if grouped != rules.fair_key:
                handler.group_anew()
                state.take_back(handler)
            if limit != rules.rate_per_s:
                handler.limit_anew()
                state.take_back(handler)
        state.flow.replace(reloaded.limits, state.assignments.values())
        state.share_outputs()
        state.commits.replan(reloaded.commit_interval_s, reloaded.commit_count, now)
        self._completions.deadlines.replan()
        state.balance()

    # Time.

    def commit_due(self, now: Now) -> bool:
        """Whether the next `tick` commits: report `passed` positions before it."""
        return self._state.commits.due(now)

    def tick(self, now: Now) -> None:
        """Do what is due: release tiers, retry writes, end pauses, start trials, commit floors."""
        self._intake.tick(now)
        self._quarantines.tick(now)
        self._redeliveries.tick(now)
        self._outbox.tick(now)
        self._pauses.tick(now)
        self._breakers.tick(now)
        self._batches.tick(now)
        state = self._state
        if state.commits.due(now):
            for assignment, waited_s in state.commits.unanswered(state.assignments.values(), now):
                member = assignment.topic, assignment.partition
                since_ms = now.wall_ms - round(waited_s * 1000)
                identity = Identity(assignment.topic, UNCONFIRMED)
                why = "the broker has not answered a commit"
                state.faults.wait("commit", member, identity, why, since_ms)
            state.commits.tick(state.assignments.values(), now, state.commands)
            # The length of the gap sets may shut a gate, or open it again.
            state.balance()

    def next_wakeup_s(self, now: Now) -> float:
        """Monotonic seconds at which `tick`, `expire` or `look` has something to do."""
        fair = [handler.queue.fair for handler in self._state.handlers.values()]
        looks_s = [each.next_s() for each in fair if each is not None]
        return min(self._state.commits.next_s, self.next_scan_s, self.next_due_s(now), *looks_s)

    def next_due_s(self, now: Now) -> float:
        """The same for waiting records, refused writes, pauses, trials, rates; inf without any."""
        return min(
            self._redeliveries.next_s(now),
            self._quarantines.next_s(now),
            self._outbox.next_s(),
            self._batches.next_s(),
            self._pauses.next_s(),
            self._breakers.next_s(now),
            self._scheduler.next_s(),
        )
