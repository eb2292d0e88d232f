"""Breaker: when a handler's circuit breaker opens, tries single records, and closes.

Theory. A poisonous record fails whatever happens around it; when a dependency is down, everything
fails. The difference is a run of failures without a single success, in the order in which handlers
*started*: time-outs end together, failures end soon and successes late, so the order of ends shows
runs that are none. Therefore a success counts at the moment at which it started, and clears every
failure that started before. A delivery that still runs may become such a success. So failures that
started after it don't count until it has run longer than recent successes did.

Only different records count, by their first deliveries. A redelivery that fails says little new:
it comes from a record that is known to be bad. It counts while no first delivery has ended for a
minute, for then there is nothing else to go by.

Open, single records are tried (*trials*), at most `PACE` a second. While they end at once, a few
start together, so that the pace is kept although the engine looks at them only now and then. Each
success doubles how many may run (*slow start*). When that reaches the handler's concurrency, the
breaker is closed.

Invariants (tests/framework/core/breaker/test_rule.py):

K1  fewer than `quiet_failures` different records never open it, however often they fail.
K2  a success clears every failure that started before it, whichever ends first.
K3  open, more than one trial runs only after a success, where one has run for `PATIENCE_S`, or
    `TOGETHER` of them where the one before ended within `QUICK_S`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from math import inf

from ackfloor.core.breaker.breaker_settings import MOST_FAILURES, CircuitBreaker
from ackfloor.core.records.record import Origin

#: Seconds without the end of a first delivery after which redeliveries count.
FIRSTS_MISSED_S = 60.0
#: Trials a second, and how many of them may start together to make up for the time between looks.
PACE = 200
TOGETHER = 4
#: Seconds within which a trial has to end for that.
QUICK_S = 0.02
#: Seconds after which a trial holds up no other.
PATIENCE_S = 1.0
#: Successes whose durations are remembered, and how long one may take before there is any.
REMEMBERED = 200
UNKNOWN_S = 1.0


class BreakerState(StrEnum):
    """What a breaker lets a handler do."""

    CLOSED = "closed"
    OPEN = "open"
    SLOW_START = "slow_start"


class Forced(StrEnum):
    """The state that an operator forces on a breaker."""

    OPEN = "open"
    CLOSED = "closed"


class Breaker:
    """One handler's breaker. All times are monotonic seconds.

    Attributes:
        is_open: only trials start.
        allowed: how many of them may run.
        since_s: when it opened.
        error: type and first words of the failure that opened it, or of the last trial that failed.
    """

    __slots__ = (
        "_again",
        "_failed_last",
        "_firsts",
        "_gave_in",
        "_last_first_s",
        "_last_success_s",
        "_next_trial_s",
        "_quick",
        "_success_start_s",
        "_took_s",
        "_trials",
        "allowed",
        "error",
        "is_open",
        "since_s",
    )

    def __init__(self) -> None:
        #: Record -> when its failed delivery started, of those after the last success.
        self._firsts: dict[Origin, float] = {}
        self._again: dict[Origin, float] = {}
        #: The latest start of a success, and how long recent ones took.
        self._success_start_s = -inf
        self._took_s: deque[float] = deque(maxlen=REMEMBERED)
        #: When the last success, and the last first delivery, ended; of the first look before.
        self._last_success_s = self._last_first_s = inf
        #: The last delivery that counted has failed.
        self._failed_last = False
        #: It closed because there was nothing but redeliveries, which don't open it again.
        self._gave_in = False
        self.is_open = False
        self.allowed = 1
        self.since_s = 0.0
        self.error = ""
        #: When the trials that are not answered were started.
        self._trials: deque[float] = deque()
        #: When the next one is due by the pace; and whether the last one was quick.
        self._next_trial_s = -inf
        self._quick = False

    @property
    def state(self) -> BreakerState:
        """What it lets the handler do."""
        if not self.is_open:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.allowed == 1 else BreakerState.SLOW_START

    # Results of deliveries.

    def _look(self, now_s: float) -> None:
        """Measure from the first look: nothing is known of the time before."""
        self._last_success_s = min(self._last_success_s, now_s)
        self._last_first_s = min(self._last_first_s, now_s)

    def succeeded(self, started_s: float, took_s: float, first: bool, now_s: float) -> None:
        """A delivery was handled.

        Args:
            started_s: when it started.
            took_s: for how long it ran.
            first: whether it was the first of its record.
            now_s: the time.
        """
        self._success_start_s = max(self._success_start_s, started_s)
        self._took_s.append(took_s)
        self._last_success_s = now_s
        if first or self._last_first_s > now_s:
            self._last_first_s = now_s
        self._gave_in = self._failed_last = False
        if self._firsts or self._again:
            start_s = self._success_start_s
            self._firsts = {o: at_s for o, at_s in self._firsts.items() if at_s > start_s}
            self._again = {o: at_s for o, at_s in self._again.items() if at_s > start_s}

    def failed(self, origin: Origin, started_s: float, first: bool, now_s: float) -> None:
        """A delivery failed.

        Args:
            origin: its record.
            started_s: when it started.
            first: whether it was the first of its record.
            now_s: the time.
        """
        self._look(now_s)
        self._failed_last = True
        if first:
            self._last_first_s = now_s
            self._gave_in = False
            self._again.clear()
        if self.is_open and self.allowed == 1:
            # It is fully open, and must not remember a whole day's failures.
            return
        if first:
            if started_s > self._success_start_s:
                _note(self._firsts, origin, started_s)
        elif (
            not self._gave_in
            and started_s > self._success_start_s
            and now_s - self._last_first_s >= FIRSTS_MISSED_S
        ):
            _note(self._again, origin, started_s)

    def run_length(self) -> int:
        """Different records that failed, and nothing that started later has succeeded yet."""
        return len(self._firsts) + len(self._again.keys() - self._firsts.keys())

    def threshold(self, rules: CircuitBreaker, now_s: float) -> int:
        """How long a run opens it now."""
        quiet = now_s - self._last_success_s >= rules.quiet_after_s
        return rules.quiet_failures if quiet else rules.failures

    def decides_soon(self, rules: CircuitBreaker, now_s: float) -> bool:
        """Whether the run is at the threshold, and only running deliveries may still clear it.

        Redeliveries don't count: they start again and again, and always after what runs.
        """
        return len(self._firsts) >= self.threshold(rules, now_s)

    def should_open(self, running: Iterable[float], rules: CircuitBreaker, now_s: float) -> bool:
        """Whether the run is long enough without failures that a running delivery may yet clear.

        Args:
            running: when the deliveries that run now started.
            rules: its settings.
            now_s: the time.
        """
        patience_s = self._usual_s() * 1.5 + 0.01
        held_from_s = min((at_s for at_s in running if now_s - at_s <= patience_s), default=inf)
        failed = {o for o, at_s in self._firsts.items() if at_s < held_from_s}
        failed.update(o for o, at_s in self._again.items() if at_s < held_from_s)
        return len(failed) >= self.threshold(rules, now_s)

    def _usual_s(self) -> float:
        """How long nearly all recent successes took at most."""
        took_s = sorted(self._took_s)
        return took_s[len(took_s) * 99 // 100] if took_s else UNKNOWN_S

    # Opening and closing.

    def open(self, now_s: float) -> None:
        """Start nothing but trials from now on."""
        # An operator may open it before any delivery has ended, and it must close in time.
        self._look(now_s)
        self.is_open = True
        self.since_s = now_s
        self.start_over()
        self._trials.clear()
        self._next_trial_s = now_s
        self._quick = False

    def start_over(self) -> None:
        """Try one at a time again."""
        self.allowed = 1
        self._firsts.clear()
        self._again.clear()

    def close(self) -> None:
        """Start everything again."""
        self.is_open = False
        self.error = ""
        self._firsts.clear()
        self._again.clear()

    def gives_in(self, rules: CircuitBreaker, now_s: float) -> bool:
        """Whether there has been nothing but redeliveries for so long that it should close."""
        quiet_since_s = max(self._last_first_s, self._last_success_s, self.since_s)
        return self.is_open and now_s - quiet_since_s >= rules.gives_in_after_s

    def rested(self, now_s: float) -> None:
        """Nothing could be tried until now: only what does not come from now on counts for it."""
        if self.is_open:
            self._last_first_s = now_s

    def recovered(self, now_s: float) -> bool:
        """Whether its last trial has succeeded and there has been nothing to try for a minute.

        Where little comes, slow start would last for hours, and limit nothing.
        """
        quiet_s = now_s - max(self._last_success_s, self.since_s)
        return self.allowed > 1 and not self._failed_last and quiet_s >= FIRSTS_MISSED_S

    def give_in(self) -> None:
        """Close, and let no redelivery open it again."""
        self.close()
        self._gave_in = True

    # Trials.

    def room(self, now_s: float) -> int:
        """How many more trials may start now."""
        trials = self._trials
        while trials and now_s - trials[0] >= PATIENCE_S:
            trials.popleft()
        if self.allowed > 1:
            return self.allowed - len(trials)
        if trials or now_s < self._next_trial_s:
            return 0
        # A hair more: moments are floats.
        due = min(TOGETHER, (now_s - self._next_trial_s) * PACE + 1.000001)
        return int(due) if self._quick else 1

    def next_room_s(self, now_s: float) -> float:
        """When a trial may start, if none is answered before."""
        if self.room(now_s) > 0:
            return now_s
        paced_s = self._next_trial_s if self.allowed == 1 else now_s
        if len(self._trials) < self.allowed:
            return paced_s
        return max(paced_s, self._trials[0] + PATIENCE_S)

    def tried(self, count: int, now_s: float) -> None:
        """So many trials were started."""
        if count > 0:
            self._trials.extend([now_s] * count)
            if self.allowed > 1:
                # Slow start has no pace to make up for.
                self._next_trial_s = now_s
                return
            since_s = max(self._next_trial_s, now_s - (TOGETHER - 1) / PACE)
            self._next_trial_s = since_s + count / PACE

    def is_trial(self, started_s: float) -> bool:
        """Whether a delivery that started then is one."""
        return self.is_open and started_s >= self.since_s

    def trial_ended(self, started_s: float, now_s: float) -> None:
        """A trial has ended; one past `PATIENCE_S` was not counted any more."""
        self._quick = now_s - started_s < QUICK_S
        if self._trials and now_s - started_s < PATIENCE_S:
            self._trials.popleft()

    def trial_left(self) -> None:
        """A trial ended without a result that counts."""
        self._quick = False
        if self._trials:
            self._trials.popleft()

    def trial_succeeded(self, concurrency: int) -> bool:
        """Twice as many may run; returns whether that is all of them."""
        self.allowed *= 2
        return self.allowed >= concurrency


def _note(starts_s: dict[Origin, float], origin: Origin, started_s: float) -> None:
    """A record failed; once there are as many as any breaker needs, others change nothing."""
    before_s = starts_s.get(origin)
    if before_s is not None:
        starts_s[origin] = max(started_s, before_s)
    elif len(starts_s) < MOST_FAILURES:
        starts_s[origin] = started_s
