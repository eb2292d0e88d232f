"""Loop: the owner thread's turn, and the ordered end of a worker.

One thread owns the consumer, the parking producer and the engine. A turn: poll the source (its
reports go straight into the engine), take what executors posted, take delivery reports, let the
engine see the time, do what it commands, tell observers. Rebalance callbacks arrive inside the
poll, on this same thread, which is why no lock is needed and no thread ever waits for another
that could wait for the consumer.

A blocked poll can't be woken by a finished handler, so while deliveries are in flight it waits
briefly, a little longer each time nothing came of it; a new record ends it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.commands import (
    Cancel,
    Command,
    Commit,
    Pause,
    Publish,
    Resume,
    TakeBack,
)
from ackfloor.core.parking.partition_text import partitions_text
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transact, Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition, Now, Record, StartPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.rule_changes import Reloaded, overdue_under
from ackfloor.ports import Clock, Sink, Source, TransactionalSink
from ackfloor.runtime.executors.inbox import Inbox
from ackfloor.runtime.logging.delivery_log import DeliveryLog
from ackfloor.runtime.loop.error_functions import ErrorFunctions
from ackfloor.runtime.loop.executors import Executors
from ackfloor.runtime.loop.snapshot_publisher import SnapshotPublisher
from ackfloor.runtime.reporting.observers import Observers
from ackfloor.runtime.reporting.turn_times import TurnTimes

log = logging.getLogger("ackfloor.worker")

SHORTEST_WAIT_S = 0.001
LONGEST_BUSY_WAIT_S = 0.02
LONGEST_IDLE_WAIT_S = 0.2
#: Seconds between two looks at what handlers have done while they have enough to do.
SATED_WAIT_S = 0.002
#: So many records that wait for a slot are enough, and so many for each of a handler's slots.
ENOUGH = 6_000
ENOUGH_EACH = 6
#: Seconds that a transaction has to end when its partitions leave, beyond the drain.
TRANSACTION_S = 5.0


class Loop:
    """The owner thread of one worker; implements the listeners of its ports.

    Args:
        engine: decides.
        source: reads and commits.
        sink: writes parked records; of the kind that the engine commands.
        executors: what runs the handlers.
        inbox: what the executors post to.
        clock: both clocks.
        observers: receive all events and snapshots.
        drain_s: how long a revoke waits for running handlers, in seconds.
        delivery_log: what is logged of deliveries.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        sink: Sink | TransactionalSink,
        executors: Executors,
        inbox: Inbox,
        clock: Clock,
        observers: Observers,
        delivery_log: DeliveryLog,
        error_functions: ErrorFunctions,
        *,
        group: str,
        drain_s: float,
    ) -> None:
        self.engine = engine
        self._source = source
        self._sink = sink
        self.executors = executors
        self._inbox = inbox
        self._clock = clock
        self._delivery_log = delivery_log
        self._error_functions = error_functions
        self._drain_s = drain_s
        #: What else the owner thread does once a turn, also while it drains: the supervisor's mail.
        self.interlude: Callable[[], None] = _nothing
        self._times = TurnTimes(clock.monotonic())
        self._wait_s = SHORTEST_WAIT_S
        #: Whether some handler takes records in order.
        self._in_lanes = any(
            handler.rules.ordering != "unordered" for handler in engine.state.handlers.values()
        )
        self.snapshots = SnapshotPublisher(
            engine, source, executors, observers, delivery_log, self._times, group=group
        )

    # One turn.

    def open(self, topics: Sequence[str]) -> None:
        """Start the executors, the sink and the source."""
        self.executors.start()
        self._sink.open(self)
        self._source.subscribe(topics, self)
        self.snapshots.subscribed = True
        self.snapshots.set_status("running")

    def turn(self, max_wait_s: float = LONGEST_IDLE_WAIT_S) -> bool:
        """Wait at most `max_wait_s` seconds for records; returns whether anything happened."""
        if self._sated():
            count = self._source.poll(min(max_wait_s, self._sated_wait_s()), ahead=False)
        else:
            count = self._source.poll(min(max_wait_s, self._patience()))
        self._times.polled(self._clock.monotonic())
        moved = self.after_poll()
        self._times.worked(self._clock.monotonic())
        busy = count > 0 or moved
        if busy:
            self.snapshots.mark_changed()
        self._wait_s = SHORTEST_WAIT_S if busy else min(self._wait_s * 2, LONGEST_IDLE_WAIT_S)
        return busy

    def after_poll(self) -> bool:
        """Everything of a turn but the poll; returns whether anything happened."""
        moved = self._collect()
        if self._sink.pending():
            self._sink.poll()
        now = self._clock.now()
        engine = self.engine
        self._expire(now)
        if engine.commit_due(now):
            engine.passed(self._source.positions())
            engine.counted(self._source.partition_counts())
        if engine.in_question:
            engine.judge(self.executors.running(), now)
        engine.tick(now)
        if engine.suspects.active:
            engine.suspects.tick(now, quiet=not any(self.executors.running()))
        moved |= self._execute()
        self.snapshots.publish(now)
        return moved

    def _sated(self) -> bool:
        """Whether every handler has so much to do that what is read now would only take memory.

        What waits of noisy and hanging keys is not enough: a quiet one may be behind it in the log.
        """
        state, by_name = self.engine.state, self.executors.by_name
        return all(
            handler.queue.in_order() + by_name[name].queued()
            >= max(ENOUGH, ENOUGH_EACH * handler.rules.concurrency)
            for name, handler in state.handlers.items()
        ) and not any(route.high_priority for route in state.routes.values())

    def _sated_wait_s(self) -> float:
        """Seconds the poll may wait while handlers have enough to do."""
        if not self.engine.rationed:
            return SATED_WAIT_S
        # They wait for time to pass, and no answer makes it pass sooner.
        return max(SATED_WAIT_S, self._patience())

    def _patience(self) -> float:
        """Seconds the poll may wait before something here is due."""
        inbox = self._inbox
        if inbox.answered or inbox.finished or inbox.returned:
            return 0.0
        now = self._clock.now()
        longest = LONGEST_BUSY_WAIT_S if self._is_expecting() else LONGEST_IDLE_WAIT_S
        wait_s = min(self._wait_s, longest, self.engine.next_wakeup_s(now) - now.mono_s)
        return max(0.0, wait_s)

    def _is_expecting(self) -> bool:
        """Whether something has to come soon: an answer, or the record that frees a key.

        The latter may be in no hurry and wakes nobody: a poll that waits does not see it.
        """
        handlers = self.engine.state.handlers.values()
        return self.engine.flow.open_count > 0 or any(h.lanes.quarantined for h in handlers)

    def _collect(self) -> bool:
        """Take what the executors posted, and what the supervisor said."""
        self.interlude()
        inbox = self._inbox
        self._take_returned()
        moved = self._take_answers()
        while inbox.strays:
            self.snapshots.stray(inbox.strays.popleft(), self._clock.monotonic())
        while inbox.errors:
            delivery, exc = inbox.errors.popleft()
            self._delivery_log.raised_late(delivery, exc, self._clock.monotonic())
        return moved

    def _take_failures(self) -> None:
        """Take what is known of failures, before the events of their answers are logged."""
        failures = self._inbox.failures
        while failures:
            delivery, failure, exc = failures.popleft()
            self._delivery_log.failing(delivery, failure)
            self._error_functions.failed(delivery, failure, exc)

    def _take_pauses(self) -> None:
        inbox = self._inbox
        while inbox.pause_requests:
            handler, duration_s, reason = inbox.pause_requests.popleft()
            now = self._clock.now()
            self.engine.hold(handler, duration_s, reason, now)
            self._delivery_log.pause(handler, duration_s, reason, now.mono_s)

    def _take_returned(self) -> None:
        """Take what executors gave back without having started it."""
        if self._inbox.returned:
            returned = self._inbox.take_returned()
            # A request for a pause was posted before what it stopped.
            self._take_pauses()
            for handler, units in returned.items():
                self.engine.returned(handler, units)

    def _take_answers(self) -> bool:
        inbox, engine = self._inbox, self.engine
        answered, ended = inbox.take_answers()
        # Each was posted before its answer.
        self._take_failures()
        if not (answered or ended):
            return False
        now = self._clock.now()
        if answered:
            engine.answered(answered, now)
        for handler, unit in ended:
            engine.unit_ended(handler, unit, now)
        return True

    def _expire(self, now: Now) -> None:
        """End what is overdue."""
        if now.mono_s < self.engine.next_scan_s:
            return
        self.engine.expire(self.executors.running(), now)
        self.executors.cancel_answered(now)

    def _execute(self) -> bool:
        """Do what the engine commands, and give the executors what they have room for."""
        moved = self._obey()
        return self._feed() or moved

    def _obey(self) -> bool:
        """Do what the engine commands; returns whether there was something."""
        moved = False
        # Before anything is given.
        self._take_pauses()
        if self.engine.transactional:
            self.engine.transact(self._clock.now())
        while commands := self.engine.take_commands():
            moved = True
            for command in commands:
                self._do(command)
        self._take_returned()
        return moved

    def _feed(self) -> bool:
        """Give the executors what may start next; returns whether there was something."""
        engine, moved, now = self.engine, False, self._clock.now()
        for name, executor in self.executors.by_name.items():
            if engine.look_due(name, now) and engine.look(name, executor.running(), now):
                executor.take_back()
                self._take_returned()
            if engine.counts_starts(name):
                executor.running()
            if units := engine.next_units(name, executor.queued(), now):
                executor.submit(units)
                moved = True
            if units := engine.next_last(name, executor.queued(), now):
                executor.submit(units, last=True)
                moved = True
        return moved

    def _do(self, command: Command) -> None:
        if isinstance(command, Publish):
            cast("Sink", self._sink).publish(command.write)
        elif isinstance(command, Transact):
            sink = cast("TransactionalSink", self._sink)
            sink.transact(command.transaction, self._source.membership())
        elif isinstance(command, Commit):
            self._source.commit(command.positions, wait=False)
        elif isinstance(command, Cancel):
            self.executors.cancel(command.delivery)
        elif isinstance(command, Pause):
            self._source.pause(command.partitions)
        elif isinstance(command, Resume):
            self._source.resume(command.positions)
        elif isinstance(command, TakeBack):
            self.executors.by_name[command.handler].take_back()

    # Settings.

    def reload(self, reloaded: Reloaded) -> None:
        """Go by other settings from now on; on the owner thread.

        Raises:
            ValueError: something differs that can't change; nothing was changed then.
        """
        self.engine.reload(reloaded, self._clock.now())
        self.snapshots.mark_changed()
        for rules in reloaded.handlers:
            self.executors.by_name[rules.name].resize(rules.concurrency)

    def overdue_under(self, reloaded: Reloaded) -> tuple[TrackedDelivery, ...]:
        """The running deliveries that these settings would end at once."""
        return overdue_under(self.executors.running(), reloaded, self._clock.now())

    # SourceListener: called inside `Source.poll`, on this thread.

    def on_assigned(self, starts: Sequence[StartPosition]) -> None:
        """Partitions came."""
        self.engine.assign(starts, self._clock.now())
        self.engine.counted(self._source.partition_counts())
        for start in starts:
            key = (start.topic, start.partition)
            self.engine.assignments[key].mark = self.executors.in_flight.of(*key)
        if starts:
            log.info("assigned %s", partitions_text(starts))
        else:
            log.info("joined the group, which has no partitions for this worker so far")

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions leave: drain what runs, commit their floors, forget them."""
        self.engine.stop(partitions)
        if self.engine.transactional:
            self._free_lanes(partitions)
        self._await_quiet(partitions, self._drain_s)
        if self.engine.transactional:
            until_s = self._clock.monotonic() + TRANSACTION_S
            self._await(lambda: not self._in_transaction(partitions), until_s)
        if final := self.engine.final_positions(partitions):
            self._source.commit(final, wait=True)
        self.engine.drop(partitions, lost=False)
        self.executors.cancel_closed()
        log.info("revoked %s", partitions_text(partitions))

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were taken: commit nothing, forget them."""
        self.engine.stop(partitions)
        self.engine.drop(partitions, lost=True)
        self.executors.cancel_closed()
        log.warning(
            "lost %s without a last commit: another worker has them or will; what was open here is "
            "delivered again there",
            partitions_text(partitions),
        )

    def on_gone(self, partition: TopicPartition, position: int, end: int) -> None:
        """Retention was faster than we are."""
        self.engine.gone(partition, position, end)

    def on_deleted(self, ends: Sequence[tuple[TopicPartition, int]]) -> None:
        """A retry topic is gone, and what was read of it is here."""
        self.engine.deleted(ends)

    def on_records(self, records: Sequence[Record]) -> None:
        """Records were read."""
        self._times.polled(self._clock.monotonic())
        if self._in_lanes:
            # A lane that is over costs less than a record that has to wait behind its end.
            self._take_answers()
        self.engine.polled(records, self._clock.now())
        self._execute()
        self._times.worked(self._clock.monotonic())

    def on_committed(self, results: Sequence[tuple[CommitPosition, str | None]]) -> None:
        """A commit came back."""
        self.engine.committed(results, self._clock.now())

    def is_carried(self, partition: TopicPartition) -> bool:
        """Whether a transaction under way commits a partition or writes to it."""
        return self.engine.is_carried(partition)

    # SinkListener: called inside `Sink.poll` or `Sink.publish`, on this thread.

    def on_published(self, writes: Sequence[PendingWrite]) -> None:
        """Parked records are durable."""
        self.engine.published(writes, self._clock.now())

    def on_publish_failed(self, write: PendingWrite, error: str, *, too_large: bool) -> None:
        """A parked record was not written."""
        self.engine.publish_failed(write, error, too_large=too_large, now=self._clock.now())

    # TransactionListener: called inside `TransactionalSink.poll`, on this thread.

    def on_transaction(self, transaction: Transaction, outcome: TransactionOutcome) -> None:
        """A transaction is over."""
        self.engine.transacted(transaction, outcome, self._clock.now())

    # The end.

    def _in_transaction(self, partitions: Sequence[TopicPartition]) -> bool:
        """Whether the end of a transaction of these partitions may still be reported."""
        return self._sink.pending() > 0 and self.engine.transacting(partitions)

    def _free_lanes(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait for outstanding commits, which no poll does any more: writes wait for them."""
        outstanding = self.engine.unanswered_commits(partitions)
        if outstanding:
            self._source.commit(outstanding, wait=True)

    def _await_quiet(self, partitions: Sequence[TopicPartition], bound_s: float) -> bool:
        """Let running handlers and outstanding parks of partitions end, up to a bound."""
        keys = {(key.topic, key.partition) for key in partitions}
        until_s = self._clock.monotonic() + bound_s

        def busy() -> bool:
            if any((d.topic, d.partition) in keys for d in self.executors.running()):
                return True
            return any(a.parking for k, a in self.engine.assignments.items() if k in keys)

        return self._await(lambda: not busy(), until_s)

    def _await(self, quiet: Callable[[], bool], until_s: float, *, at_end: bool = False) -> bool:
        """Take answers and delivery reports, without polling, until quiet or out of time.

        No poll takes the other partitions away meanwhile if the group does not hear this member. So
        nothing of them begins then; but at the worker's end only what no other worker has is left.
        """
        while True:
            self._collect()
            self._sink.poll()
            now = self._clock.now()
            self._expire(now)
            self._obey()
            if at_end or not self._source.silent():
                self._feed()
            self.snapshots.publish(now)
            if quiet() and not (self._inbox.answered or self._inbox.finished):
                return True
            if now.mono_s >= until_s:
                return False
            self._clock.sleep(SHORTEST_WAIT_S)

    def close(self, shutdown_s: float, forced: Callable[[], bool]) -> int:
        """End in order; returns how many records were left open by force or for lack of time.

        1. Only records of deleted topics still begin: no other worker has them. 2. Running
        handlers may end, until `shutdown_s` seconds are over or `forced()`. 3. Async handlers are
        cancelled; their records are released. 4. Outstanding parks are confirmed. 5. Leaving the
        group commits the floors (through `on_revoked`). 6. Observers see the last events.
        """
        self.snapshots.set_status("draining")
        until_s = self._clock.monotonic() + shutdown_s
        hasten = self.engine.hasten
        self._await(lambda: forced() or not hasten(self._clock.now()), until_s, at_end=True)
        keys = [TopicPartition(*key) for key in self.engine.assignments]
        self.engine.stop(keys)
        if self.engine.transactional:
            self._free_lanes(keys)
        self._await(lambda: forced() or not any(self.executors.running()), until_s)
        cut_short = self.executors.stop(forced=forced())
        left_s = 0.0 if forced() else max(0.0, until_s - self._clock.monotonic())
        self._collect()
        self._execute()
        self._drain_s = 0.0
        if self.engine.transactional:
            # What has gathered needs a transaction of its own, after the one under way.
            self._await_quiet(keys, left_s)
        self._sink.close(max(1.0, left_s) if not forced() else 0.5)
        self._execute()
        if self.snapshots.subscribed:
            self._source.close()
            self.snapshots.subscribed = False
        self.engine.abandon_orphans()
        self.snapshots.set_status("stopped")
        self.snapshots.publish_last(self._clock.now())
        return cut_short


def _nothing() -> None:
    """Between two turns, where there is nothing else to do."""
