"""Circuit: the state of one handler's circuit breaker, and the records that it withholds."""

from __future__ import annotations

from typing import NamedTuple

from ackfloor.core.breaker.park_rate import TokenBucket
from ackfloor.core.breaker.rule import Breaker, Forced
from ackfloor.core.queues.flow_limits import Gate
from ackfloor.core.records.outcomes import Failed, Rejected


class Circuit:
    """One handler's circuit breaker and what goes with it; see `breaker_control` and `withheld`.

    Attributes:
        breaker: judges, and says how many trials may run.
        bucket: limits how many failures are parked while it is not closed.
        failing: records that failed in a row when it opened; 0 where an operator opened it.
        forced, forced_until_s, forced_reason: what an operator forced, until when (monotonic
            seconds; infinity until further notice), and why.
        crowded: at the last look the executor had enough that it had not started.
        dry: there was nothing to try at the last look.
        next_trial_s: when the next one may start (monotonic seconds), as of the last look.
        owned_s: when the worker last owned a partition of the handler's, while it is not closed.
        count_gate, size_gate: of what the handler keeps: records, and bytes of their values.
        full: one of these is shut, so nothing more is fetched for it.
        withholds: records are withheld, or were at the last look.
    """

    __slots__ = (
        "breaker",
        "bucket",
        "count_gate",
        "crowded",
        "dry",
        "failing",
        "forced",
        "forced_reason",
        "forced_until_s",
        "full",
        "next_trial_s",
        "owned_s",
        "size_gate",
        "withholds",
    )

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.bucket = TokenBucket()
        self.failing = 0
        self.forced: Forced | None = None
        self.forced_until_s = 0.0
        self.forced_reason = ""
        self.crowded = False
        self.dry = False
        self.next_trial_s = 0.0
        self.owned_s = 0.0
        self.count_gate, self.size_gate = Gate(1), Gate(1)
        self.full = False
        self.withholds = False


class Trials(NamedTuple):
    """A record that was withheld.

    Attributes:
        times: how often it was.
        since_s: when it was for the first time (monotonic seconds).
        outcome: how its last delivery ended; None where it has followed its policy since.
    """

    times: int
    since_s: float
    outcome: Failed | Rejected | None


class WithheldRecords:
    """One partition's withheld records, and how often each was withheld until it is settled."""

    __slots__ = ("_sizes", "size", "trials")

    def __init__(self) -> None:
        #: Offset -> bytes of its value, of those that wait now.
        self._sizes: dict[int, int] = {}
        #: Bytes of all of these.
        self.size = 0
        #: Of those that were withheld, by offset, until they are settled.
        self.trials: dict[int, Trials] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, offset: int) -> bool:
        return offset in self._sizes

    def tried(self, offset: int) -> int:
        """How often a record was withheld."""
        found = self.trials.get(offset)
        return 0 if found is None else found.times

    def last_outcome(self, offset: int) -> Failed | Rejected | None:
        """How the last delivery of a record ended, where it was withheld because of that."""
        found = self.trials.get(offset)
        return None if found is None else found.outcome

    def retried_in_place(self, offset: int) -> None:
        """A record that was withheld before has failed anew, and follows its policy this time."""
        found = self.trials.get(offset)
        if found is not None:
            self.trials[offset] = found._replace(outcome=None)

    def add(self, offset: int, size: int, outcome: Failed | Rejected, now_s: float) -> int:
        """A record is withheld; returns how often it was so far."""
        self._sizes[offset] = size
        self.size += size
        before = self.trials.get(offset)
        times, since_s = (1, now_s) if before is None else (before.times + 1, before.since_s)
        self.trials[offset] = Trials(times, since_s, outcome)
        return times

    def redeliver(self, offset: int) -> None:
        """A record is delivered again."""
        self.size -= self._sizes.pop(offset, 0)

    def clear(self) -> None:
        """Forget what waits: the partition leaves."""
        self._sizes.clear()
        self.size = 0
