"""Breakers: opens, closes and forces the handlers' circuit breakers, and starts their trials.

`core.breaker.rule` decides; this module acts. Open, a handler's executor gets nothing but trials.
Records that were not tried yet are given one by one, in their order; only where none waits, what
failed before comes again: withheld records and redeliveries whose time has come. So a healthy
record waits for no failed one. Where what the handler keeps reaches its share of the worker's
limits, fetching of its topics stops, and of no other handler's.

An operator may force a breaker open or closed, for a while or until further notice. A worker that
takes the place of another one begins with the breakers that were open there (`resume`).

Invariants (tests/framework/core/scheduling/test_breaker_control.py):

K4  a handler whose breaker is not closed always has a next trial planned, or nothing to try.
K5  what fetching stopped for resumes it when it ends.
K6  a breaker closes when its handler has recovered, when nothing but redeliveries has been there
    for long, when its partitions have left, when it is disabled, or when an operator forces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from ackfloor.core.breaker.rule import TOGETHER, Forced
from ackfloor.core.messages.events import BreakerClosed, BreakerOpened, TrialEnded
from ackfloor.core.queues.flow_limits import WAITING_PART
from ackfloor.core.queues.handler_queue import Unit
from ackfloor.core.records.outcomes import Failed, Rejected
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.redeliveries import Redeliveries
from ackfloor.core.scheduling.withheld import is_no_sign
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState
from ackfloor.core.values.durations import format_duration

FAULT = "breaker"
#: Seconds between two updates of the fault of a breaker that is not closed.
FAULT_INTERVAL_S = 1.0
#: Seconds without a partition after which a breaker closes: in a rebalance there may be none for a
#: while, and none at the start of a worker.
LEFT_S = 60.0


class Breakers:
    """The breakers of one worker's handlers; only the owner thread calls it.

    Args:
        state: the worker's.
        redeliveries: delivers a handler's failed records again that are due.
    """

    __slots__ = ("_faults_due_s", "_redeliveries", "_state")

    def __init__(self, state: WorkerState, redeliveries: Redeliveries) -> None:
        self._state = state
        self._redeliveries = redeliveries
        #: When to update the faults next.
        self._faults_due_s = 0.0

    # Results of deliveries.

    def handled(self, now: Now) -> None:
        """Count what was handled since the last call."""
        for stats in self._state.stats.values():
            acked, noted = stats.acked, stats.noted
            if len(acked) == noted:
                continue
            stats.noted = len(acked)
            self._all_succeeded(self._state.handlers[stats.handler], acked[noted:], now)

    def succeeded(self, deliveries: Sequence[TrackedDelivery], now: Now) -> None:
        """A handler discarded records, or handled some that are not settled yet; one at least."""
        self._all_succeeded(deliveries[0].assignment.handler, deliveries, now)

    def _all_succeeded(
        self, handler: HandlerState, deliveries: Sequence[TrackedDelivery], now: Now
    ) -> None:
        breaker = handler.circuit.breaker
        if not (breaker.is_open or breaker.run_length()):
            # Nothing to clear: the last success is enough.
            deliveries = deliveries[-1:]
        for delivery in deliveries:
            self._succeeded(handler, delivery, now)

    def _succeeded(self, handler: HandlerState, delivery: TrackedDelivery, now: Now) -> None:
        breaker, started_s = handler.circuit.breaker, delivery.started_s
        first = delivery.attempt == 1
        breaker.succeeded(started_s, delivery.finished_s - started_s, first, now.mono_s)
        if not breaker.is_trial(started_s):
            return
        breaker.trial_ended(started_s, now.mono_s)
        self._report_trial(delivery, "")
        if handler.circuit.forced is Forced.OPEN:
            return
        if breaker.trial_succeeded(handler.rules.concurrency):
            self._close(handler, "recovered", now)

    def failed(self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now) -> None:
        """A delivery failed."""
        handler = delivery.assignment.handler
        breaker, started_s = handler.circuit.breaker, delivery.started_s
        self.handled(now)
        is_trial = breaker.is_trial(started_s)
        if is_trial:
            breaker.trial_ended(started_s, now.mono_s)
        if is_no_sign(delivery, outcome):
            return
        failure = outcome.failure
        breaker.error = self._state.shown(failure)
        if handler.rules.breaker.enabled and handler.circuit.forced is not Forced.CLOSED:
            tried_before = delivery.record_offset in delivery.assignment.withheld.trials
            first = delivery.attempt == 1 and not tried_before
            breaker.failed(delivery.origin, started_s, first, now.mono_s)
        if is_trial:
            self._report_trial(delivery, failure.error_type)

    def paused(self, handler: HandlerState) -> None:
        """A delivery asked for a pause: as a trial it neither succeeded nor failed."""
        if handler.circuit.breaker.is_open:
            handler.circuit.breaker.trial_left()

    # Judging.

    @property
    def in_question(self) -> bool:
        """Whether `judge` has something to do."""
        return any(self._is_in_question(h, inf) for h in self._state.handlers.values())

    def _is_in_question(self, handler: HandlerState, now_s: float) -> bool:
        breaker, rules = handler.circuit.breaker, handler.rules.breaker
        if not rules.enabled or handler.circuit.forced is not None:
            return False
        if breaker.is_open and breaker.allowed == 1:
            return False
        length = breaker.run_length()
        return length >= rules.quiet_failures and length >= breaker.threshold(rules, now_s)

    def judge(self, running: Iterable[TrackedDelivery], now: Now) -> None:
        """Open the breakers of handlers whose records failed too often in a row.

        Args:
            running: the deliveries that run now.
            now: the time.
        """
        running = list(running)
        for handler in self._state.handlers.values():
            if not self._is_in_question(handler, now.mono_s):
                continue
            breaker, rules = handler.circuit.breaker, handler.rules.breaker
            starts = [
                d.started_s
                for d in running
                if d.assignment.handler is handler and d.started_s and not d.closed
            ]
            if not breaker.should_open(starts, rules, now.mono_s):
                continue
            if breaker.is_open:
                breaker.start_over()
            else:
                self._open(handler, breaker.run_length(), now)

    def _open(self, handler: HandlerState, failing: int, now: Now) -> None:
        handler.circuit.breaker.open(now.mono_s)
        handler.circuit.failing = failing
        handler.circuit.owned_s = now.mono_s
        self._state.take_back(handler)
        error_type, _, message = handler.circuit.breaker.error.partition(": ")
        name = handler.rules.name
        self._state.events.append(BreakerOpened(name, failing, error_type, message))
        self._rest(handler)
        self._put_fault(handler, now)

    def _close(self, handler: HandlerState, why: str, now: Now) -> None:
        breaker, name = handler.circuit.breaker, handler.rules.name
        if why == "gave in":
            breaker.give_in()
        else:
            breaker.close()
        self._state.faults.clear(FAULT, name)
        self._state.events.append(BreakerClosed(name, now.mono_s - breaker.since_s, why))
        self._rest(handler)

    def resume(self, name: str, failing: int, error: str, now: Now) -> None:
        """Start with a breaker open, as it was in the worker that this one replaces.

        Args:
            name: the handler.
            failing: records that failed in a row there.
            error: type and first words of the failure that opened it.
            now: the time.
        """
        handler = self._state.handlers[name]
        circuit = handler.circuit
        if handler.rules.breaker.enabled and not circuit.breaker.is_open:
            circuit.breaker.error = error
            self._open(handler, failing, now)

    # Forced by an operator.

    def force(self, name: str, what: Forced | None, until_s: float, reason: str, now: Now) -> None:
        """Force a breaker open or closed, or back to automatic.

        Args:
            name: the handler.
            what: None: automatic again, from its present state.
            until_s: monotonic seconds at which that ends by itself; infinity for never.
            reason: why, for people.
            now: the time.
        """
        handler = self._state.handlers[name]
        circuit = handler.circuit
        circuit.forced, circuit.forced_until_s, circuit.forced_reason = what, until_s, reason
        self._obey(handler, now)

    def _obey(self, handler: HandlerState, now: Now) -> None:
        circuit = handler.circuit
        if circuit.forced is not None and circuit.forced_until_s <= now.mono_s:
            circuit.forced, circuit.forced_reason = None, ""
        if circuit.forced is Forced.OPEN:
            if circuit.breaker.is_open:
                circuit.breaker.start_over()
            else:
                self._open(handler, 0, now)
        elif circuit.forced is Forced.CLOSED and circuit.breaker.is_open:
            self._close(handler, "operator", now)

    # Time.

    def tick(self, now: Now) -> None:
        """Try records of handlers whose breakers are not closed, or close them."""
        faults_due = now.mono_s >= self._faults_due_s
        if faults_due:
            self._faults_due_s = now.mono_s + FAULT_INTERVAL_S
        for handler in self._state.handlers.values():
            circuit = handler.circuit
            if circuit.forced is not None and circuit.forced_until_s <= now.mono_s:
                self._obey(handler, now)
            if circuit.breaker.is_open and (why := self._ends(handler, now)):
                self._close(handler, why, now)
            if circuit.breaker.is_open or circuit.withholds or circuit.full:
                self._rest(handler)
            if circuit.breaker.is_open:
                circuit.next_trial_s = self._next_trial_s(handler, now)
                if faults_due:
                    self._put_fault(handler, now)

    def _ends(self, handler: HandlerState, now: Now) -> str:
        """Why a breaker that is not closed closes although nothing has succeeded; or nothing."""
        rules = handler.rules.breaker
        if handler.circuit.forced is not None:
            return ""
        if not rules.enabled:
            return "disabled"
        if handler.paused_until_s:
            # Nothing is tried while an operator pauses it.
            return ""
        if handler.circuit.breaker.gives_in(rules, now.mono_s):
            return "gave in"
        circuit = handler.circuit
        if circuit.dry and circuit.breaker.recovered(now.mono_s):
            return "recovered"
        if any(a.handler is handler for a in self._state.assignments.values()):
            circuit.owned_s = now.mono_s
        return "left" if now.mono_s >= circuit.owned_s + LEFT_S else ""

    def trials(
        self, handler: HandlerState, queued: int, now: Now, tokens: int | None = None
    ) -> list[Unit]:
        """What may start now of a handler whose breaker is not closed.

        Args:
            handler: the handler.
            queued: what its executor has not started; slots may hang, and the queue must not grow.
            now: the time.
            tokens: how many its rate lets start; None for no limit.
        """
        circuit = handler.circuit
        breaker = circuit.breaker
        most = breaker.allowed + TOGETHER - queued
        circuit.crowded = most <= 0
        room = min(breaker.room(now.mono_s), most)
        if tokens is not None:
            room = min(room, tokens)
        taken: list[Unit] = []
        if room > 0:
            circuit.dry = False
        while len(taken) < room:
            taken += handler.queue.take_singly(room - len(taken))
            if len(taken) < room and not self._redeliveries.release_all(
                handler, room - len(taken), now
            ):
                circuit.dry = True
                break
        breaker.tried(len(taken), now.mono_s)
        return taken

    def next_s(self, now: Now) -> float:
        """Monotonic seconds of the next trial, or at which a forced state ends."""
        soonest = inf
        for handler in self._state.handlers.values():
            if handler.circuit.forced is not None:
                soonest = min(soonest, handler.circuit.forced_until_s)
            if handler.circuit.breaker.is_open:
                soonest = min(soonest, self._next_trial_s(handler, now))
        return soonest

    def _next_trial_s(self, handler: HandlerState, now: Now) -> float:
        if handler.circuit.crowded or self._state.exclusive:
            # Not at a time: the next answer makes room.
            return inf
        at_s = max(handler.circuit.breaker.next_room_s(now.mono_s), handler.held_until_s)
        if handler.rate is not None:
            at_s = max(at_s, handler.rate.ready_s())
        return max(at_s, self._redeliveries.next_of(handler)) if handler.circuit.dry else at_s

    # Fetching.

    def _rest(self, handler: HandlerState) -> None:
        """Stop fetching a handler's topics while it keeps its share of the limits."""
        limits, circuit = self._state.flow.limits, handler.circuit
        mine = [a for a in self._state.assignments.values() if a.handler is handler]
        count = sum(len(a.withheld) for a in mine)
        size = sum(a.withheld.size for a in mine)
        circuit.withholds = count > 0
        if circuit.breaker.is_open:
            # What is not tried yet takes as much, and waits for the same.
            count = sum(len(a.tracker.open) - a.waits_in_tier()[0] for a in mine)
            size = sum(a.open_bytes - a.waits_in_tier()[1] for a in mine)
        circuit.count_gate.limit = max(1, limits.max_open // WAITING_PART)
        circuit.size_gate.limit = max(1, limits.max_open_bytes // WAITING_PART)
        if circuit.breaker.is_open or circuit.breaker.run_length():
            full = circuit.count_gate.update(count)
            circuit.full = circuit.size_gate.update(size) or full
        else:
            # It works: withheld records are delivered again with half of its slots, new ones with
            # the others.
            circuit.full = circuit.count_gate.shut = circuit.size_gate.shut = False
        self._state.rest(handler)

    # Events and faults.

    def _report_trial(self, delivery: TrackedDelivery, error_type: str) -> None:
        topic, partition, offset = delivery.origin
        name = delivery.assignment.handler.rules.name
        self._state.events.append(TrialEnded(topic, partition, offset, name, error_type))

    def _put_fault(self, handler: HandlerState, now: Now) -> None:
        name, circuit, breaker = handler.rules.name, handler.circuit, handler.circuit.breaker
        if circuit.forced is not None:
            why = (
                f"an operator opened it ({circuit.forced_reason or 'no reason given'}), and "
                f"`ackfloor breaker auto {name}` takes that back"
            )
        elif not circuit.failing:
            why = "an operator had opened it"
        else:
            why = f"{circuit.failing} records in a row failed, which is no record's fault"
        open_s = format_duration(round(now.mono_s - breaker.since_s))
        last = f"; the last error: {breaker.error}" if breaker.error else ""
        withheld = self._state.withheld(handler)
        full = ", its share of what the worker holds, so nothing more is read" * circuit.full
        text = (
            f"circuit breaker {breaker.state.replace('_', ' ')} for {open_s}: {why}{last}; "
            f"{breaker.allowed} of {handler.rules.concurrency} may run, {withheld} records are "
            f"withheld{full}; `ackfloor breaker close {name}` lets all go by the retry policy"
        )
        self._state.faults.put(FAULT, name, text, now.wall_ms)
