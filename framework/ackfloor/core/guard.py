"""Guard: whether so many deliveries of a handler fail that it is no message's fault.

Theory. One bad message fails again and again; a dependency that is down fails every message. So
what is counted is *records*: how the last deliveries of the last distinct records ended, a window
bounded by count (an outage is noticed after the same few records at any rate) and by age (a
quiet topic forgets). When the share of failing ones reaches the limit the guard trips: nothing
starts but probes, and what fails goes back to where it was, with its budget (`holds`). Probes go
out on a schedule, answered or not, because one that hangs must not keep others from finding out
that the dependency is back. The first success is followed by larger rounds, and the guard is reset
after the last of them: a lucky success does not release a flood. Right after that, fewer failures
trip it again.

First deliveries decide where there are enough of them. A redelivery that fails says little new:
it comes from a record that is known to be bad, and a handful of those make many redeliveries.

Invariants (tests/framework/core/test_guard.py):

G1  failures of fewer than `min_sample` records never trip it, however often they fail; for
    `forget_after` after a reset, first deliveries of `PROBATION` records do.
G2  nothing older than `forget_after` counts, and of each kind no more than `window` records.
G3  tripped, it is reset by successes alone, and after a round in which too many fail probing
    begins again with one.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from sys import maxsize

from ackfloor.core.durations import format_duration, parse_duration
from ackfloor.core.errors import SettingError
from ackfloor.core.model import Origin

#: How many probes each round lets through; after the last one the guard is reset.
ROUNDS = (1, 4, 16)
#: First deliveries that are enough to trip a guard that was reset less than `forget_after` ago.
PROBATION = 10
#: Failed probes of one record after which more records are fetched, to try others.
FAIR_SHARE = 2
#: Failed probes of one record after which it is judged like any other: what is first in the only
#: lane there is may be bad itself, and must not keep the guard tripped for ever.
MOST_PROBES = 20
MOST_WINDOW = 100_000
#: Where nothing is: behind everything.
_NONE = (maxsize, inf, 0)


@dataclass(frozen=True, init=False, slots=True)
class FloodGuard:
    """When a handler's failures stop its work instead of filling retry and dead-letter topics.

    Args:
        limit: the share of failing records that trips the guard, above 0 up to 1.
        window: how many of the last records count.
        min_sample: how many must be known before anything is concluded.
        forget_after: what is older does not count.
        probe_delay: wait before the first probe; it doubles with each further one.
        max_probe_delay: the longest wait between two probes.
        enabled: False: failures never stop a handler.

    Raises:
        SettingError: a value is refused; the message names it and the fix.
    """

    limit: float
    window: int
    min_sample: int
    forget_after_s: float
    probe_delay_s: float
    max_probe_delay_s: float
    enabled: bool

    def __init__(
        self,
        limit: float = 0.5,
        window: int = 100,
        min_sample: int = 20,
        forget_after: timedelta | str = "60s",
        probe_delay: timedelta | str = "1s",
        max_probe_delay: timedelta | str = "5s",
        *,
        enabled: bool = True,
    ) -> None:
        _check_numbers(limit, window, min_sample, enabled)
        for name, value in (
            ("limit", float(limit)),
            ("window", window),
            ("min_sample", min_sample),
            ("forget_after_s", _positive("forget_after", forget_after)),
            ("probe_delay_s", _positive("probe_delay", probe_delay)),
            ("max_probe_delay_s", _positive("max_probe_delay", max_probe_delay)),
            ("enabled", enabled),
        ):
            object.__setattr__(self, name, value)
        if self.max_probe_delay_s < self.probe_delay_s:
            raise SettingError(
                "guard.max_probe_delay",
                format_duration(self.max_probe_delay_s),
                f"shorter than probe_delay {format_duration(self.probe_delay_s)}",
                "raise max_probe_delay or lower probe_delay",
            )


def _check_numbers(limit: object, window: object, min_sample: object, enabled: object) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= 1:
        why, fix = "not a share of records", "write a number above 0, up to 1, such as 0.5"
        raise SettingError("guard.limit", limit, why, fix)
    for name, count in (("window", window), ("min_sample", min_sample)):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_WINDOW:
            why = "not a number of records"
            raise SettingError(f"guard.{name}", count, why, f"write 1 to {MOST_WINDOW}")
    assert isinstance(window, int)
    assert isinstance(min_sample, int)
    if min_sample > window:
        why = f"more than the window of {window} ever holds"
        raise SettingError("guard.min_sample", min_sample, why, "lower it, or raise window")
    if not isinstance(enabled, bool):
        raise SettingError("guard.enabled", enabled, "neither true nor false", "write one of them")


def _positive(name: str, value: timedelta | str) -> float:
    seconds = parse_duration(value, field=f"guard.{name}")
    if seconds <= 0:
        fix = 'write a duration such as "1s"'
        raise SettingError(f"guard.{name}", format_duration(seconds), "no time at all", fix)
    return seconds


class Window:
    """How the last records of one kind ended; a record that failed twice is one."""

    __slots__ = ("_added", "_handled", "failing", "handled")

    def __init__(self) -> None:
        #: Failing records, the oldest failure first -> its place, and when (monotonic seconds).
        self.failing: dict[Origin, tuple[int, float]] = {}
        self.handled = 0
        #: Place, when and how many, oldest first.
        self._handled: deque[tuple[int, float, int]] = deque()
        #: Counts places: what comes in one turn has one time, and an order all the same.
        self._added = 0

    def sample(self) -> int:
        """How many records are known."""
        return self.handled + len(self.failing)

    def add_handled(self, count: int, now_s: float, rules: FloodGuard) -> None:
        """Records were handled."""
        self._added += 1
        self._handled.append((self._added, now_s, count))
        self.handled += count
        self.trim(now_s, rules)

    def add_failing(self, origin: Origin, now_s: float, rules: FloodGuard) -> None:
        """A record failed, perhaps again."""
        self._added += 1
        self.failing.pop(origin, None)
        self.failing[origin] = self._added, now_s
        self.trim(now_s, rules)

    def trim(self, now_s: float, rules: FloodGuard) -> None:
        """Forget what is too old or too much, the oldest first."""
        handled, failing = self._handled, self.failing
        oldest_s = now_s - rules.forget_after_s
        while True:
            place, handled_s, count = handled[0] if handled else _NONE
            failing_place, failing_s = next(iter(failing.values()), _NONE[:2])
            excess = self.sample() - rules.window
            if excess <= 0 and min(handled_s, failing_s) >= oldest_s:
                return
            if failing_place < place:
                del failing[next(iter(failing))]
            elif 0 < excess < count and handled_s >= oldest_s:
                handled[0] = place, handled_s, count - excess
                self.handled -= excess
            else:
                handled.popleft()
                self.handled -= count


class Guard:
    """One handler's guard.

    Attributes:
        tripped: nothing starts but probes.
        since_s: when it tripped (monotonic seconds).
        probing_since_s: what started at this time or later is a probe; inf before the first.
        delay_s: the wait after the next probe.
    """

    __slots__ = (
        "_again",
        "_failed",
        "_first",
        "_handled",
        "_probation_until_s",
        "_probed",
        "_round",
        "_round_since_s",
        "_size",
        "delay_s",
        "probing_since_s",
        "since_s",
        "tripped",
    )

    def __init__(self) -> None:
        self._first = Window()
        self._again = Window()
        self._probation_until_s = 0.0
        self.tripped = False
        self.since_s = 0.0
        self.probing_since_s = inf
        self.delay_s = 0.0
        #: Origin -> its failed probes since the guard tripped.
        self._probed: Counter[Origin] = Counter()
        #: The present round: which, since when, of how many probes, and how those ended.
        self._round = 0
        self._round_since_s = 0.0
        self._size = ROUNDS[0]
        self._handled = self._failed = 0

    # Counting.

    def handled(self, count: int, now_s: float, rules: FloodGuard) -> None:
        """Records were handled."""
        self._first.add_handled(count, now_s, rules)

    def failed(self, origin: Origin, first: bool, now_s: float, rules: FloodGuard) -> bool:
        """A delivery failed; returns whether that is one too many.

        Args:
            origin: the record.
            first: whether it was the first delivery of the record.
        """
        if first:
            self._first.add_failing(origin, now_s, rules)
        else:
            self._first.trim(now_s, rules)
            if origin not in self._first.failing:
                self._again.add_failing(origin, now_s, rules)
        self._again.trim(now_s, rules)
        failing, sample = self.counts(now_s, rules)
        return sample > 0 and failing >= rules.limit * sample

    def counts(self, now_s: float, rules: FloodGuard) -> tuple[int, int]:
        """Failing records and known ones, of the kind that decides; 0 of 0 where few are known."""
        first, again = self._first, self._again
        on_probation = now_s < self._probation_until_s
        enough = min(PROBATION, rules.min_sample) if on_probation else rules.min_sample
        if first.sample() >= enough:
            return len(first.failing), first.sample()
        failing = len(first.failing) + len(again.failing)
        sample = failing + first.handled
        return (failing, sample) if sample >= rules.min_sample else (0, 0)

    def trip(self, now_s: float, rules: FloodGuard) -> None:
        """Begin to probe."""
        self.tripped = True
        self.since_s = now_s
        self.probing_since_s = inf
        self.delay_s = rules.probe_delay_s
        self._probed.clear()
        self._start_round(0, now_s)

    # Tripped: probing.

    def next_delay_s(self, rules: FloodGuard) -> float:
        """How long to wait after the probe that goes out now; each wait is twice the last."""
        self.delay_s = min(self.delay_s * 2, rules.max_probe_delay_s)
        return self.delay_s

    @property
    def round_size(self) -> int:
        """How many probes the present round lets through."""
        return ROUNDS[self._round]

    def let_through(self, count: int) -> bool:
        """So many probes were let through; False where there was nothing to try."""
        self._size = min(self._size, max(1, count))
        return count > 0

    @property
    def succeeding(self) -> bool:
        """Whether the last round succeeded."""
        return self._round > 0

    def probe_handled(self, now_s: float) -> bool:
        """A probe succeeded; returns whether its round is over and a larger one is due."""
        self._handled += 1
        return self._next_round(now_s)

    def probe_failed(
        self, origin: Origin, started_s: float, now_s: float, rules: FloodGuard
    ) -> bool:
        """A probe failed; returns whether a larger round is due all the same.

        One that started before the round says nothing about it: it may have hung for long.
        """
        self._probed[origin] += 1
        if started_s < self._round_since_s:
            return False
        self._failed += 1
        if self._failed >= rules.limit * self._size:
            self._start_round(0, now_s)
            return False
        return self._next_round(now_s)

    @property
    def tried(self) -> bool:
        """Whether a probe has failed since the guard tripped."""
        return bool(self._probed)

    def probes_of(self, origin: Origin) -> int:
        """Failed probes of one record since the guard tripped."""
        return self._probed[origin]

    def begin_again(self, now_s: float) -> None:
        """A probe said that the dependency is away."""
        self._start_round(0, now_s)

    @property
    def done(self) -> bool:
        """Whether the last round has succeeded."""
        return self._round >= len(ROUNDS)

    def reset(self, now_s: float, rules: FloodGuard) -> None:
        """End it; for a while it takes less to trip it again."""
        self.tripped = False
        self._first, self._again = Window(), Window()
        self._probation_until_s = now_s + rules.forget_after_s
        self._start_round(0, now_s)

    def _next_round(self, now_s: float) -> bool:
        if self._handled + self._failed < self._size:
            return False
        self._start_round(self._round + 1, now_s)
        return True

    def _start_round(self, number: int, now_s: float) -> None:
        self._round = number
        self._size = ROUNDS[number] if number < len(ROUNDS) else 0
        self._round_since_s = now_s
        self._handled = self._failed = 0
