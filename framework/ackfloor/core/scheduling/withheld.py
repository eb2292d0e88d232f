"""Withheld: keeps failed records open while their handler's circuit breaker is not closed.

Theory. Closed, a failure follows the retry policy. Not closed, the records are not to blame, and
must not fill the retry and dead-letter topics. So failures are parked at a low rate (`park_rate`),
and none is dead-lettered because its budget ran out. The others are
*withheld*: the record stays open and takes no slot, and the same attempt comes again after one to
five seconds. A run of failures that is long enough while older deliveries still run is treated
likewise: it is not decided yet. A worker withholds from its part of such a run on. What is
withheld for a part follows the policy after `UNDECIDED_TRIALS`: a few records that always fail
may make such a run, and nothing would end it.

Where records are in lanes, one that is withheld blocks its lane. So after `MOST_TRIALS` the head of
a lane follows the policy to the end, at that rate as well. Retried in place, failures leave nowhere
and follow the policy, but the last attempt is not spent.

What is the record's own fault, or a plan, follows the policy at once: a value that can't be
decoded, a wait that the handler asked for (`Retry(after=)`), a deadline moved by a reload; but for
its last attempt.

Invariants (tests/framework/core/scheduling/test_withheld.py):

W1  a record that is withheld stays open, keeps its attempt, and nothing is written for it.
W2  while the breaker is not closed, no more is parked than the rate admits.
W3  what was withheld is delivered again, unless its partition leaves.
"""

from __future__ import annotations

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.events import RecordWithheld
from ackfloor.core.parking.parking import source_envelope
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.outcomes import Bury, Failed, Park, Rejected, Verdict, judge
from ackfloor.core.records.record import Now
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerState
from ackfloor.core.state.worker_state import WorkerState

#: Seconds until a withheld record is tried again: at first, doubled with each trial, and at most.
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 5.0
#: Trials of the head of a lane after which it follows the policy to its end.
MOST_TRIALS = 20
#: Trials of a record after which it follows the policy where the breaker has not opened.
UNDECIDED_TRIALS = 3
#: So many different records are the smallest part of a run.
FEWEST_PART = 3


class Withheld:
    """The records that failed, have no slot, and are written nowhere."""

    __slots__ = ("_state",)

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    # Verdicts.

    def verdict(
        self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now
    ) -> Verdict | None:
        """The verdict on a failed delivery; None where its record is withheld."""
        rules = delivery.assignment.handler.rules
        verdict = judge(outcome, rules.policy, delivery.attempt, delivery.last_error)
        trials = delivery.assignment.withheld.tried(delivery.record_offset)
        if not self._restrains(delivery.assignment.handler, trials, now):
            return verdict
        if isinstance(verdict, Bury) and verdict.reason in {Reason.EXHAUSTED, Reason.CRASH}:
            if rules.ordering == "unordered" or trials < MOST_TRIALS:
                return None
        elif is_no_sign(delivery, outcome) or (isinstance(verdict, Park) and rules.in_place):
            return verdict
        return verdict if self._may_leave(delivery.assignment.handler, now) else None

    def _restrains(self, handler: HandlerState, trials: int, now: Now) -> bool:
        """Whether a failure may be withheld instead of following the policy."""
        breaker, rules = handler.circuit.breaker, handler.rules.breaker
        if breaker.is_open:
            return True
        if not rules.enabled or handler.circuit.forced is Forced.CLOSED:
            return False
        if breaker.decides_soon(rules, now.mono_s):
            return True
        if trials >= UNDECIDED_TRIALS:
            return False
        # Each worker's part of the run: together they let no more go before one of them opens.
        share = self._state.share_of(handler)
        enough = max(FEWEST_PART, breaker.threshold(rules, now.mono_s) * share)
        return breaker.run_length() >= enough

    def may_follow(self, handler: HandlerState, now: Now) -> bool:
        """Whether a record that did not fail may be written behind one that did."""
        return not self._restrains(handler, 0, now) or self._may_leave(handler, now)

    def _may_leave(self, handler: HandlerState, now: Now) -> bool:
        rate_per_s = handler.rules.breaker.park_rate_per_s
        return handler.circuit.bucket.take(rate_per_s, self._state.share_of(handler), now.mono_s)

    # Withholding.

    def withhold(self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now) -> None:
        """Deliver a record again in a while, as the same attempt; its lane waits for it."""
        if delivery.assignment.stopping:
            # It stays open, for whoever owns the partition next.
            return
        due_s, again = self.plan(delivery, outcome, now)
        self._state.block(again, again=True)
        self._state.wait(again, due_s)

    def plan(
        self, delivery: TrackedDelivery, outcome: Failed | Rejected, now: Now
    ) -> tuple[float, TrackedDelivery]:
        """The same attempt at a record once more, and when it is due (monotonic seconds)."""
        assignment, offset = delivery.assignment, delivery.record_offset
        again = delivery.again(delivery.envelope)
        if again.envelope is None and assignment.handler.rules.batch is not None:
            # A delivery with an envelope is alone in its batch. This envelope is empty.
            again.envelope = source_envelope(delivery)
        assignment.tracker.replace(offset, again)
        trials = assignment.withheld.add(offset, delivery.size, outcome, now.mono_s)
        assignment.handler.circuit.withholds = True
        self._report(delivery)
        self._state.flow.look_again()
        wait_s = FIRST_WAIT_S * 2.0 ** min(trials - 1, 10)
        return now.mono_s + min(wait_s, LONGEST_WAIT_S), again

    def _report(self, delivery: TrackedDelivery) -> None:
        assignment = delivery.assignment
        self._state.events.append(
            RecordWithheld(
                assignment.source_topic,
                assignment.partition,
                delivery.offset,
                assignment.handler.rules.name,
                delivery.attempt,
                assignment.topic,
            )
        )


def is_no_sign(delivery: TrackedDelivery, outcome: Failed | Rejected) -> bool:
    """Whether a failure is the record's own, or a plan of the handler's or of an operator's."""
    if isinstance(outcome, Rejected):
        return outcome.reason is Reason.DECODE
    if outcome.reason is Reason.TIMEOUT:
        return delivery.started_s < delivery.assignment.handler.timeout_since_s
    return outcome.after_s is not None
