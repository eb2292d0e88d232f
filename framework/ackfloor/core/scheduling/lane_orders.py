"""LaneOrders: what an operator does about ordered lanes whose head failed.

Theory. Most of the time the head of a blocked lane waits for its next delivery. Only then may an
operator move it: it is tried now, or at another time; or it leaves the lane, which goes on: for a
retry topic, for the dead-letter topic, or nowhere. Who owns a partition is the only one to know of
its lanes, so each worker is asked, and answers for those of its own.

Invariants (tests/framework/core/scheduling/test_lane_orders.py):

B1  a head that is running, queued, or being written to the dead-letter topic stays as it is.
B2  nothing is settled here but what is discarded; a dead-lettered head holds its lane until the
    broker has confirmed it.
B3  what is behind a head starts when the head is settled or has left, and in its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ackfloor.core.messages.lane_order import (
    EXHAUSTED,
    MOST_NAMED,
    MOST_WRITES,
    TOO_MANY,
    Action,
    LaneAnswer,
    LaneOrder,
    Place,
)
from ackfloor.core.outbox.outbox import Outbox
from ackfloor.core.queues.lanes import Lane
from ackfloor.core.queues.quarantine import has_order
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Bury, Failed, Park
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.scheduling.blocked_lanes import Head, discarded, doing_of, last_outcome, newest
from ackfloor.core.scheduling.quarantine_orders import QuarantineOrders
from ackfloor.core.scheduling.quarantined_keys import Quarantines
from ackfloor.core.state.assignment import Assignment, HandlerState
from ackfloor.core.state.worker_state import WorkerState
from ackfloor.core.values.suggestions import there_are

#: Those that write a record.
_WRITES = {Action.PARK, Action.DEAD_LETTER}
#: A withheld head can't be tried sooner: when one may start is for its circuit breaker to say.
_MOVES_WITHHELD = {Action.PARK, Action.DEAD_LETTER, Action.DISCARD}


class LaneOrders:
    """Acts on the blocked lanes of a worker; only the owner thread calls it."""

    __slots__ = ("_outbox", "_quarantine_orders", "_quarantines", "_state")

    def __init__(self, state: WorkerState, outbox: Outbox, quarantines: Quarantines) -> None:
        self._state = state
        self._outbox = outbox
        self._quarantines = quarantines
        self._quarantine_orders = QuarantineOrders(state, outbox, quarantines)

    def carry_out(self, order: LaneOrder, now: Now) -> LaneAnswer:
        """Do to a handler's blocked lanes what an operator wants."""
        handler = self._state.handlers.get(order.handler)
        if handler is None:
            names = there_are(order.handler, self._state.handlers)
            why = f"HANDLER={order.handler!r}: no handler of this worker; {names}"
            return LaneAnswer(refused=f"{why}; write the name of one of them")
        answer, heads = LaneAnswer(), list[TrackedDelivery]()
        left = Counter[str]()
        # What is named is looked for in any case: what is refused is not missing.
        wanted = list(self._wanted(handler, order.wanted, answer.found))
        if order.action is Action.PARK and (why := self._has_no_tiers(handler)):
            answer.refused = why
            return answer
        # Looked for before anything is moved: the next record of a key is not in this order.
        quarantined = self._quarantine_orders.wanted(handler, order, answer.found)
        for lane, head in wanted:
            why = _why_left(lane, head, order.action)
            if why:
                left[why] += 1
            else:
                heads.append(head)
        if order.action in _WRITES and len(heads) > MOST_WRITES:
            left[TOO_MANY] = len(heads) - MOST_WRITES
            del heads[MOST_WRITES:]
        offsets = _by_assignment(heads)
        if order.dry_run:
            answer.places = _waiting(offsets)
            answer.done = len(answer.places)
        else:
            answer.done = self._move(offsets, order, now)
        if answer.done < len(heads):
            # `retry bury` of a record that is retried in place in a retry topic.
            left[Head.DEAD_LETTERING] += len(heads) - answer.done
        answer.left = dict(left)
        if quarantined:
            self._quarantine_orders.carry_out(order, quarantined, answer, now)
        if len(answer.places) > MOST_NAMED:
            answer.places.clear()
        return answer

    def _wanted(
        self, handler: HandlerState, wanted: Sequence[bytes | Place], found: set[int]
    ) -> Iterator[tuple[Lane, TrackedDelivery]]:
        places = {each: n for n, each in enumerate(wanted)}
        for lane in handler.lanes.blocked.values():
            head = newest(lane)
            if head is None or head.assignment.stopping:
                continue
            origin = head.origin
            names: set[object] = {
                head.key,
                (head.topic, head.partition, head.record_offset),
                (origin.topic, origin.partition, origin.offset),
            }
            here = {places[name] for name in names if name in places}
            if here or not wanted:
                found |= here
                yield lane, head

    def _has_no_tiers(self, handler: HandlerState) -> str:
        rules = handler.rules
        if rules.in_place:
            return (
                f"handler {rules.name} retries in place (on_failure='block'): it has no retry "
                "topics; dead-letter the record, or discard it"
            )
        return "" if rules.policy.tiers() else f"handler {rules.name} has no retries: no topics"

    def _move(
        self, offsets: Mapping[Assignment, Collection[int]], order: LaneOrder, now: Now
    ) -> int:
        """Do it to these heads, as far as they wait; returns to how many."""
        count = 0
        moves: Mapping[Action, Callable[[TrackedDelivery, LaneOrder, Now], None]] = {
            Action.PARK: self._park,
            Action.DEAD_LETTER: self._dead_letter,
            Action.DISCARD: self._discard,
        }
        for assignment, chosen in offsets.items():
            for due_s, head in assignment.waiting.take(chosen):
                count += 1
                if order.action is Action.RETRY:
                    self._wait(head, min(due_s, now.mono_s), now)
                elif order.action is Action.DELAY:
                    self._wait(head, now.mono_s + order.delay_s, now)
                else:
                    assignment.withheld.redeliver(head.record_offset)
                    handler = assignment.handler
                    key = head.lane_key(handler.rules.ordering == "key")
                    handler.lanes.take_head(key, head)
                    moves[order.action](head, order, now)
        # Not left to the next read or answer: while everything is paused there may be none.
        self._state.unbalanced = self._state.flow.any_paused
        self._state.flow.look_again()
        return count

    def _wait(self, head: TrackedDelivery, due_s: float, now: Now) -> None:
        if head.envelope is not None:
            due_ms = now.wall_ms + round((due_s - now.mono_s) * 1000)
            head.envelope = head.envelope._replace(not_before_ms=due_ms)
        self._state.wait(head, due_s)

    def _park(self, head: TrackedDelivery, _order: LaneOrder, now: Now) -> None:
        """As when its handler had failed with no breaker in the way."""
        outcome = last_outcome(head)
        delay_s = head.assignment.handler.rules.policy.delay_s(head.attempt)
        assert delay_s is not None, "what has no attempt left is not parked"
        reason = outcome.reason if isinstance(outcome, Failed) else Reason.ERROR
        verdict = Park(delay_s, False, reason, outcome.failure)
        if head.assignment.handler.rules.quarantines and has_order(head):
            self._quarantines.failed(head, verdict, now)
            return
        self._state.go_on(head)
        self._outbox.park(head, verdict, now)

    def _dead_letter(self, head: TrackedDelivery, _order: LaneOrder, now: Now) -> None:
        self._state.block(head, again=False)
        outcome = head.assignment.withheld.last_outcome(head.record_offset)
        if outcome is None:
            self._outbox.bury(head, now)
        else:
            verdict = Bury(Reason.DEAD_LETTER, outcome.failure, by_operator=True)
            self._outbox.park(head, verdict, now)

    def _discard(self, head: TrackedDelivery, order: LaneOrder, now: Now) -> None:
        state, assignment = self._state, head.assignment
        assignment.end(head)
        state.settle(head)
        state.go_on(head)
        if assignment.handler.rules.quarantines:
            self._quarantines.ended(head, now)
        state.events.append(discarded(head, order.reason))


def _why_left(lane: Lane, head: TrackedDelivery, action: Action) -> str:
    """Why a head is not moved; empty where it is."""
    doing = doing_of(lane, head)
    if doing not in {Head.WAITING, Head.WITHHELD}:
        return doing
    if doing is Head.WITHHELD and action not in _MOVES_WITHHELD:
        return doing
    policy = head.assignment.handler.rules.policy
    if action is Action.PARK and policy.delay_s(head.attempt) is None:
        return EXHAUSTED
    return ""


def _by_assignment(heads: Iterable[TrackedDelivery]) -> dict[Assignment, set[int]]:
    offsets: dict[Assignment, set[int]] = {}
    for head in heads:
        offsets.setdefault(head.assignment, set()).add(head.record_offset)
    return offsets


def _waiting(offsets: Mapping[Assignment, Collection[int]]) -> list[Place]:
    return [
        (assignment.topic, assignment.partition, offset)
        for assignment, chosen in offsets.items()
        for offset in assignment.waiting.times(chosen)
    ]
