"""Completions: answers, time-outs and late answers; each delivery ends once.

`closed` is set by the first outcome that is applied, or by the deadline; where something else ends
a delivery (its partition leaves, its batch is tried again, it is condemned) by `Assignment.end`.
Whatever comes after that is late: it is counted and ignored.

Where handlers can be killed, the deadline closes nothing: it has the process killed, and the
executor answers when the process has been seen dead. So nothing of such a delivery runs any more
when it is parked, and an answer that was quicker than the kill counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackfloor.core.messages.commands import Cancel
from ackfloor.core.messages.events import (
    DeliveryTimedOut,
    LateAnswers,
    RecordDiscarded,
    RecordsAcked,
    RedeliveriesStarted,
    ReplaysEnded,
)
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.queues.quarantine import has_order
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import (
    ACKED,
    CONSUME_TIMEOUT,
    Discarded,
    Failed,
    Outcome,
    Rejected,
)
from ackfloor.core.records.record import Failure, Now
from ackfloor.core.records.tracked_delivery import TAKES_ROOM, TrackedDelivery
from ackfloor.core.scheduling.batch_completions import Batches
from ackfloor.core.scheduling.breaker_control import Breakers
from ackfloor.core.scheduling.quarantined_keys import Quarantines
from ackfloor.core.scheduling.retry_in_place import InPlace
from ackfloor.core.scheduling.withheld import Withheld
from ackfloor.core.state.assignment import AckStats, Assignment, HandlerState
from ackfloor.core.state.deadlines import Deadlines
from ackfloor.core.state.worker_state import WorkerState


class Completions:
    """From a handler's answer, or its deadline, to a settled or parked record."""

    __slots__ = (
        "_batches",
        "_breakers",
        "_in_place",
        "_outbox",
        "_quarantines",
        "_state",
        "_withheld",
        "deadlines",
    )

    def __init__(
        self,
        state: WorkerState,
        outbox: Outbox,
        in_place: InPlace,
        breakers: Breakers,
        withheld: Withheld,
        batches: Batches,
        quarantines: Quarantines,
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._in_place = in_place
        self._breakers = breakers
        self._withheld = withheld
        self._batches = batches
        self._quarantines = quarantines
        self.deadlines = Deadlines()

    def answered(self, deliveries: Iterable[TrackedDelivery], now: Now) -> None:
        """Apply the outcomes of deliveries."""
        handled: list[TrackedDelivery] = []
        assignment: Assignment | None = None
        for delivery in deliveries:
            if delivery.closed:
                delivery.assignment.stats.late += 1
                continue
            if delivery.outcome is not ACKED or delivery.assignment is not assignment:
                self._settle(handled, now)
                handled, assignment = [], delivery.assignment
            delivery.closed = True
            if delivery.retrying:
                self._redelivery_ended(delivery, delivery.outcome, now)
            if delivery.outcome is ACKED:
                handled.append(delivery)
            else:
                self._ended(delivery, now)
        self._settle(handled, now)
        self._breakers.handled(now)
        self._state.rebalance()

    def _settle(self, handled: list[TrackedDelivery], now: Now) -> None:
        """Settle records of one partition that were handled one after the other."""
        if not handled:
            return
        assignment, state = handled[0].assignment, self._state
        last, handler = handled[-1], assignment.handler
        settled = self._without_outputs(handled, now) if handler.rules.exactly_once else handled
        assignment.tracker.settle_all([d.record_offset for d in settled])
        size = sum([d.size for d in settled])
        assignment.open_bytes -= size
        assignment.stats.acked += settled
        handler.usual.took(last.finished_s - last.started_s)
        if (fair := handler.queue.fair) is not None:
            fair.ended(handled)
        self._lanes_go_on(handler, handled)
        state.flow.sub(len(settled), size)
        state.commits.settled(len(settled))

    def _without_outputs(
        self, handled: Sequence[TrackedDelivery], now: Now
    ) -> list[TrackedDelivery]:
        """Have the outputs of handled records written; returns the records that have none."""
        settled: list[TrackedDelivery] = []
        publishing: list[TrackedDelivery] = []
        for delivery in handled:
            outputs = delivery.outputs
            if outputs is None or not (outputs.items or outputs.too_large):
                settled.append(delivery)
            else:
                publishing.append(delivery)
        if publishing:
            self._breakers.succeeded(publishing, now)
            self._outbox.put_out(publishing, now)
        return settled

    def _lanes_go_on(self, handler: HandlerState, ended: Sequence[TrackedDelivery]) -> None:
        """Queue the lanes of these deliveries that have more records."""
        if handler.rules.ordering != "unordered":
            lanes = handler.lanes.deliveries_ended(ended)
            if lanes:
                handler.queue.put(lanes)

    def _redelivery_ended(
        self, delivery: TrackedDelivery, outcome: Outcome | None, now: Now
    ) -> None:
        assignment = delivery.assignment
        handler, trials = assignment.handler, assignment.withheld.trials
        # What `redelivered` does, without two calls for each record.
        if delivery.retrying == TAKES_ROOM:
            handler.open_retries -= 1
        delivery.retrying = 0
        handled = outcome is ACKED or isinstance(outcome, Discarded)
        if handled and handler.rules.ordering != "unordered":
            self._state.free(delivery)
            if handler.rules.quarantines:
                self._quarantines.ended(delivery, now)
        if trials and delivery.record_offset in trials:
            # It was withheld: its due time is long past, or it had none.
            if handled:
                del trials[delivery.record_offset]
            return
        envelope, stats = delivery.envelope, assignment.stats
        assert envelope is not None, "a redelivery has an envelope, or was withheld"
        if envelope.replays and delivery.attempt == 1:
            # Redriven by an operator: its first delivery since then.
            stats.replays_handled += handled
            stats.replays_failed += isinstance(outcome, Failed | Rejected)
        elif envelope.not_before_ms is not None:
            started_ms = now.wall_ms - (now.mono_s - delivery.started_s) * 1000
            stats.attempts.append(envelope.attempt + 1)
            stats.lateness_s.append((started_ms - envelope.not_before_ms) / 1000)

    def _ended(self, delivery: TrackedDelivery, now: Now) -> None:
        """A delivery ended in another way than handled."""
        outcome = delivery.outcome
        assignment = delivery.assignment
        if (fair := assignment.handler.queue.fair) is not None:
            fair.ended((delivery,))
        if isinstance(outcome, Discarded):
            self._state.settle(delivery)
            self._lanes_go_on(assignment.handler, (delivery,))
            self._breakers.succeeded((delivery,), now)
            self._state.events.append(
                RecordDiscarded(
                    assignment.source_topic,
                    assignment.partition,
                    delivery.offset,
                    assignment.handler.rules.name,
                    outcome.reason,
                )
            )
        elif isinstance(outcome, Failed | Rejected):
            if outcome.reason is Reason.TIMEOUT:
                self._report_timeout(delivery, now)
            self._fail(delivery, outcome, now)
        # Released: it stays open, for whoever owns the partition next.

    def _fail(self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now) -> None:
        assignment = delivery.assignment
        rules = assignment.handler.rules
        self._state.flow.look_again()
        self._state.failed(delivery, outcome)
        if rules.batch is not None:
            self._batches.failed(delivery, outcome, now)
            return
        self._breakers.failed(delivery, outcome, now)
        verdict = self._withheld.verdict(delivery, outcome, now)
        if verdict is None:
            self._withheld.withhold(delivery, outcome, now)
            return
        if rules.in_place:
            self._in_place.failed(delivery, verdict, now)
            return
        if rules.quarantines and has_order(delivery):
            self._quarantines.failed(delivery, verdict, now)
            return
        self._leave_lane(delivery)
        self._outbox.park(delivery, verdict, now)

    def _leave_lane(self, delivery: TrackedDelivery) -> None:
        """Take a parked record out of its lane, and queue the lane."""
        handler = delivery.assignment.handler
        if handler.rules.ordering != "unordered":
            self._state.free(delivery)
            self._state.hand_out(handler, handler.lanes.leave(delivery))

    def expire(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """End the running deliveries whose deadline has passed, soonest due first."""
        timeouts = [
            handler.rules.consume_timeout_s
            for handler in self._state.handlers.values()
            if handler.rules.consume_timeout_s is not None
        ]
        overdue = self.deadlines.overdue(running, min(timeouts, default=None), now.mono_s)
        batches: dict[Batch, HandlerState] = {}
        for delivery in overdue:
            handler = delivery.assignment.handler
            if handler.rules.batch is not None:
                if handler.rules.killable and delivery.batch in batches:
                    # Its process is killed for all of them.
                    continue
                batches[delivery.batch] = handler
            self._expire(delivery, now)
        for batch, handler in batches.items():
            if batch.closed():
                self._state.commands.append(Cancel(batch.items[0]))
                self._batches.resume_lanes(handler, batch, now)

    def _expire(self, delivery: TrackedDelivery, now: Now) -> None:
        assignment = delivery.assignment
        handler = assignment.handler
        if handler.rules.killable:
            # It is overdue until it is answered, and an extension may have been quicker.
            self.deadlines.look_again(now.mono_s)
            self._state.commands.append(Cancel(delivery))
            return
        by_hand = handler.rules.by_hand
        if by_hand and not delivery.claim():
            return
        delivery.closed = True
        due_s = delivery.deadline_s
        if delivery.outcome is not None or due_s is None or due_s > now.mono_s:
            # Answered or extended between the scan and the close: that counts. An executor looks
            # at these two in the other order (outcome, then closed), so that only one of us
            # goes on with the lane.
            delivery.closed = False
            if by_hand:
                delivery.unclaim()
            self.deadlines.replan()
            return
        delivery.finished_s = now.mono_s
        outcome: Failed | Rejected = timed_out(delivery)
        if delivery.retrying:
            self._redelivery_ended(delivery, outcome, now)
        self._report_timeout(delivery, now)
        if handler.rules.batch is None:
            self._state.commands.append(Cancel(delivery))
        else:
            # The items of a batch fail together.
            outcome = delivery.batch.failure = delivery.batch.failure or outcome
        self._fail(delivery, outcome, now)

    def _report_timeout(self, delivery: TrackedDelivery, now: Now) -> None:
        assignment = delivery.assignment
        due_s = delivery.deadline_s
        if (fair := assignment.handler.queue.fair) is not None:
            fair.timed_out(delivery)
        self._state.events.append(
            DeliveryTimedOut(
                assignment.source_topic,
                assignment.partition,
                delivery.offset,
                assignment.handler.rules.name,
                delivery.attempt,
                0.0 if due_s is None else now.mono_s - due_s,
            )
        )

    def report(self, now: Now) -> None:
        """Turn what was measured since the last call into events."""
        for stats in self._state.stats.values():
            late = len(stats.late_answers)
            for _ in range(late):
                stats.late_answers.popleft()
            late += stats.late
            stats.late = 0
            if late:
                self._state.events.append(LateAnswers(stats.topic, stats.handler, late))
            if stats.lateness_s:
                attempts, stats.attempts = stats.attempts, []
                lateness_s, stats.lateness_s = stats.lateness_s, []
                self._state.events.append(
                    RedeliveriesStarted(stats.topic, stats.handler, attempts, lateness_s)
                )
            if stats.replays_handled or stats.replays_failed:
                self._state.events.append(
                    ReplaysEnded(
                        stats.topic, stats.handler, stats.replays_handled, stats.replays_failed
                    )
                )
                stats.replays_handled = stats.replays_failed = 0
            if stats.acked:
                self._state.events.append(_acked(stats, now))


def timed_out(delivery: TrackedDelivery) -> Failed:
    """The outcome of a delivery that has outlived its consume timeout."""
    due_s = delivery.deadline_s
    limit_s = 0.0 if due_s is None else due_s - delivery.started_s
    failure = Failure(CONSUME_TIMEOUT, f"no answer within {limit_s:g} s of its start")
    return Failed(failure, Reason.TIMEOUT)


def _acked(stats: AckStats, now: Now) -> RecordsAcked:
    acked, stats.acked = stats.acked, []
    stats.noted = 0
    wall_s = now.wall_ms / 1000 - now.mono_s
    return RecordsAcked(
        stats.topic,
        stats.handler,
        [d.finished_s - d.started_s for d in acked],
        [d.started_s - d.received_s for d in acked],
        [
            d.finished_s + wall_s - timestamp_ms / 1000
            for d in acked
            if (timestamp_ms := d.record.timestamp()[1]) > 0
        ],
    )
