"""Holds: when a handler takes no records, and how it finds out that it may again.

Two things hold a handler: its own word (`Pause`), for as long as it said, and its guard (`guard`),
until probes have succeeded. Both keep everything that waits where it is, by the same commands, and
both stop fetching: what would be read could not be started.

While the guard is tripped a delivery that fails, also one that was running before, is *put back*:
its record is delivered again as the same attempt, the first of its lane. It goes to the end of the
queue: what has not failed yet is tried first, and goes first afterwards. Only what is no sign of an
outage ends as always: what can't be decoded, a wait that the handler asked for by its length
(`Retry(after=)`), a deadline that was moved by a reload.

Invariants (tests/framework/core/test_holds.py):

H1  a record that is put back stays open, keeps its attempt, and nothing is written for it.
H2  a delivery that was put back stays ended: the record gets a new one, and what the old handler
    still answers is late.
H3  a handler whose guard is tripped always has a next probe planned.
H4  what fetching stopped for, a long pause or a tripped guard, resumes it when it ends; and while
    there is nothing to probe, or always the same, fetching goes on.
H5  after a first probe has failed, lanes that are fewer than `min_sample` are tried together: what
    is first in one of them does not wait for the probes of all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackfloor.core.assignment import HandlerState
from ackfloor.core.delivery import Delivery
from ackfloor.core.durations import format_duration
from ackfloor.core.envelope import Reason
from ackfloor.core.guard import FAIR_SHARE, MOST_PROBES
from ackfloor.core.guard_events import GuardProbed, GuardReset, GuardTripped, RecordPutBack
from ackfloor.core.messages import Dispatch, HandlerHeld, Hold, Probe, Unhold
from ackfloor.core.model import Failure, Now
from ackfloor.core.outcomes import Failed, Rejected
from ackfloor.core.state import WorkerState
from ackfloor.core.suspects import Suspects

#: A pause is no shorter: one of no time at all would come again without end.
SHORTEST_PAUSE_S = 0.01
#: Seconds of a pause that are worth the prefetch that stopping to fetch throws away.
LONG_PAUSE_S = 1.0
FAULT = "guard"


class Holds:
    """The handlers that take no records, and the guards that decide it."""

    __slots__ = ("_state", "_suspects")

    def __init__(self, state: WorkerState, suspects: Suspects) -> None:
        self._state = state
        self._suspects = suspects

    # A handler's own word.

    def pause(self, name: str, duration_s: float, reason: str, now: Now) -> None:
        """A handler asked for a pause; its executor has put the record back already."""
        handler, duration_s = self._state.handlers[name], max(duration_s, SHORTEST_PAUSE_S)
        handler.held_until_s = max(handler.held_until_s, now.mono_s + duration_s)
        if handler.guard.tripped:
            handler.guard.begin_again(now.mono_s)
        else:
            handler.held_reason = reason
        self._state.commands.append(Hold(name))
        self._state.events.append(HandlerHeld(name, duration_s, reason))
        if duration_s >= LONG_PAUSE_S:
            self._rest(handler, True)

    # What the guards see.

    def handled(self, now: Now) -> None:
        """Count what was handled since the last call, in batches."""
        for stats in self._state.stats.values():
            acked, noted = stats.acked, stats.noted
            if len(acked) == noted:
                continue
            stats.noted = len(acked)
            handler = self._state.handlers[stats.handler]
            if handler.guard.tripped:
                self._probes_handled(handler, acked[noted:], now)
            elif handler.rules.guard.enabled:
                handler.guard.handled(len(acked) - noted, now.mono_s, handler.rules.guard)

    def discarded(self, delivery: Delivery, now: Now) -> None:
        """A handler took a record and said that nothing is to be done with it: it works."""
        handler = delivery.assignment.handler
        if handler.guard.tripped:
            self._probes_handled(handler, [delivery], now)
        elif handler.rules.guard.enabled:
            handler.guard.handled(1, now.mono_s, handler.rules.guard)

    def spares(self, delivery: Delivery, outcome: Failed | Rejected, now: Now) -> bool:
        """A delivery failed: whether that is the fault of an outage, and the record to put back."""
        handler = delivery.assignment.handler
        guard, rules = handler.guard, handler.rules.guard
        if not rules.enabled:
            return False
        self.handled(now)
        if _is_no_sign(delivery, outcome):
            if guard.tripped and delivery.started_s >= guard.probing_since_s:
                self._state.commands.append(Probe(handler.rules.name, 1))
            return False
        if guard.tripped:
            return self._failed_while_tripped(delivery, outcome.failure, now)
        if not guard.failed(delivery.origin, delivery.attempt == 1, now.mono_s, rules):
            return False
        self._trip(handler, outcome.failure, now)
        return True

    def _failed_while_tripped(self, delivery: Delivery, failure: Failure, now: Now) -> bool:
        handler = delivery.assignment.handler
        guard = handler.guard
        if delivery.started_s < guard.probing_since_s:
            return True
        origin = delivery.origin
        larger = guard.probe_failed(origin, delivery.started_s, now.mono_s, handler.rules.guard)
        self._tell(delivery, failure.error_type)
        self._name(handler, failure, now)
        if larger:
            self._next_round(handler, now)
        probes = guard.probes_of(origin)
        if guard.tripped:
            self._rest(handler, probes < FAIR_SHARE)
        return probes < MOST_PROBES

    def _probes_handled(
        self, handler: HandlerState, deliveries: Iterable[Delivery], now: Now
    ) -> None:
        guard = handler.guard
        for delivery in deliveries:
            if guard.tripped and delivery.started_s >= guard.probing_since_s:
                self._tell(delivery, "")
                if guard.probe_handled(now.mono_s):
                    self._next_round(handler, now)

    # Tripping, probing, going on.

    def _trip(self, handler: HandlerState, failure: Failure, now: Now) -> None:
        rules, guard, name = handler.rules.guard, handler.guard, handler.rules.name
        failing, sample = guard.counts(now.mono_s, rules)
        guard.trip(now.mono_s, rules)
        handler.held_until_s = max(handler.held_until_s, now.mono_s + guard.delay_s)
        handler.held_reason = f"{failing} of the last {sample} records failed"
        self._state.commands.append(Hold(name))
        self._state.events.append(
            GuardTripped(name, failing, sample, failure.error_type, failure.message)
        )
        self._name(handler, failure, now)
        self._rest(handler, True)

    def tick(self, now: Now) -> None:
        """Lift the holds that have ended; where a guard is tripped, probe."""
        for handler in self._state.handlers.values():
            if handler.held_until_s and handler.held_until_s <= now.mono_s:
                if not handler.guard.tripped:
                    self._lift(handler)
                elif handler.rules.guard.enabled:
                    self._probe(handler, now)
                else:
                    self._reset(handler, now)

    def _probe(self, handler: HandlerState, now: Now) -> None:
        guard = handler.guard
        guard.probing_since_s = min(guard.probing_since_s, now.mono_s)
        handler.held_until_s = now.mono_s + guard.next_delay_s(handler.rules.guard)
        lanes = handler.lanes.waiting() if guard.tried else 0
        count = lanes if 1 < lanes < handler.rules.guard.min_sample else 1
        self._state.commands.append(Probe(handler.rules.name, count))

    def _next_round(self, handler: HandlerState, now: Now) -> None:
        if handler.guard.done:
            self._reset(handler, now)
        else:
            self._state.commands.append(Probe(handler.rules.name, handler.guard.round_size))

    def probed(self, name: str, count: int, now: Now) -> None:
        """So many probes were let through; none where nothing waits."""
        handler = self._state.handlers[name]
        guard = handler.guard
        if not guard.tripped:
            return
        if guard.let_through(count):
            return
        if guard.succeeding or not self._has_partitions(handler) or self._is_over(handler, now):
            self._reset(handler, now)
        else:
            self._rest(handler, False)

    def _is_over(self, handler: HandlerState, now: Now) -> bool:
        """Whether what it tripped for is forgotten, and nothing is left that could tell.

        Suspects of a crash can't: they wait for the guard.
        """
        if now.mono_s < handler.guard.since_s + handler.rules.guard.forget_after_s:
            return False
        mine = (a for a in self._state.assignments.values() if a.handler is handler)
        return sum(len(a.tracker.open) for a in mine) <= self._suspects.kept(handler)

    def _reset(self, handler: HandlerState, now: Now) -> None:
        guard, name = handler.guard, handler.rules.name
        guard.reset(now.mono_s, handler.rules.guard)
        self._state.faults.clear(FAULT, name)
        self._state.events.append(GuardReset(name, now.mono_s - guard.since_s))
        self._lift(handler)

    def _lift(self, handler: HandlerState) -> None:
        handler.held_until_s = 0.0
        self._state.commands.append(Unhold(handler.rules.name))
        self._rest(handler, False)

    def _rest(self, handler: HandlerState, resting: bool) -> None:
        if handler.resting != resting:
            handler.resting = resting
            self._state.balance()

    def _has_partitions(self, handler: HandlerState) -> bool:
        return any(a.handler is handler for a in self._state.assignments.values())

    # Putting back.

    def put_back(self, delivery: Delivery) -> None:
        """Deliver a record that was spared again, first in its lane and last in the queue."""
        if delivery.assignment.stopping:
            # It stays open, for whoever owns the partition next.
            return
        self.tell_put_back(delivery)
        again = self.again(delivery)
        handler = delivery.assignment.handler
        name, ordering = handler.rules.name, handler.rules.ordering
        if ordering == "unordered":
            self._state.commands.append(Dispatch(name, [again]))
        else:
            run = handler.lanes.put_back(again.lane(ordering == "key"), [again])
            self._state.commands.append(Dispatch(name, [run]))

    def again(self, delivery: Delivery) -> Delivery:
        """The same attempt at a record once more, in place of the one that has ended."""
        again = delivery.again(delivery.envelope)
        delivery.assignment.tracker.replace(delivery.record_offset, again)
        if again.envelope is not None:
            again.retrying = True
            delivery.assignment.handler.open_retries += 1
        return again

    def tell_put_back(self, delivery: Delivery) -> None:
        """Say that a record was spared."""
        assignment = delivery.assignment
        self._state.events.append(
            RecordPutBack(
                assignment.source_topic,
                assignment.partition,
                delivery.offset,
                assignment.handler.rules.name,
                delivery.attempt,
                assignment.topic,
            )
        )

    # Telling.

    def _tell(self, delivery: Delivery, error_type: str) -> None:
        topic, partition, offset = delivery.origin
        name = delivery.assignment.handler.rules.name
        self._state.events.append(GuardProbed(topic, partition, offset, name, error_type))

    def _name(self, handler: HandlerState, failure: Failure, now: Now) -> None:
        said = (failure.message.splitlines() or [""])[0][:200]
        tripped_s = now.mono_s - handler.guard.since_s
        text = (
            f"{handler.held_reason}, which is no message's fault; nothing starts but probes, for "
            f"{format_duration(round(tripped_s))} now; the last error: {failure.error_type}: {said}"
        )
        self._state.faults.put(FAULT, handler.rules.name, text, now.wall_ms)


def _is_no_sign(delivery: Delivery, outcome: Failed | Rejected) -> bool:
    """Whether a failure is the message's own, or a plan of the handler's or of an operator's."""
    if isinstance(outcome, Rejected):
        return outcome.reason is Reason.DECODE
    if outcome.reason is Reason.TIMEOUT:
        return delivery.started_s < delivery.assignment.handler.timeout_since_s
    return outcome.after_s is not None
