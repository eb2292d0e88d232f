"""Detection: which failures are new, and which come far more often than usual. Pure.

A *cause* is a fingerprint of a handler of a group. Time is that of the failures, not of the clock
on the wall, so what is stored late is judged as it would have been in time.

**New**: no failure of the cause lies in the look-back before this one.

**Surge**: `n` failures within the window, where `n >= minimum` and `n >= factor * usual`. What is
usual is the mean of the look-back before the window. The mean alone would be no measure on quiet
topics, where one failure a day makes two of them a surge; the minimum is what excludes them. With
the defaults (20, and 5 times the mean) independent failures at a steady rate pass both by chance
with p <= exp(-u) * (e * u / n)^n (Chernoff), which for n = 20 and u = 4 is below 1e-7. Failures are
not independent: one message that fails five times is five of them. So a surge says that far more
fails than did, not why. What goes on for a fifth of the look-back has become usual.

Invariants:

- A cause that is in the look-back is not new, whoever has seen it: `learn` and `take` remember the
  same, so a restart that learns from the table goes on where it was.
- Nothing is raised for a failure before `live_from_s`: what was there when the history began is
  the history, and counts as usual. And there is no surge before the history is four windows long:
  until then what is usual isn't known.
- A surge is raised once, and again only when two windows have passed without one.
- What is remembered is bounded: at most `MOST_CAUSES`, of each a few dozen counts. Beyond that the
  causes go that were not seen for the longest time; they would be new again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from math import floor, inf, isfinite

from ackfloor import SettingError
from ackfloor.core.values.durations import format_duration

MOST_CAUSES = 10_000
# The window moves by a fifth of itself, the look-back by a twenty-fourth.
_SLICES = 5
_STEPS = 24
# How many windows back single slices are known, for failures that are stored out of order.
_KEPT_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Rules:
    """What is new and what is a surge.

    Attributes:
        look_back_s: how long a cause is remembered, and over what a rate is usual.
        window_s: the time in which a surge's failures are counted.
        factor: how many times the usual count a surge has.
        minimum: the least count of a surge.

    Raises:
        SettingError: names the option of the command line.
    """

    look_back_s: float = 7 * 86_400.0
    window_s: float = 300.0
    factor: float = 5.0
    minimum: int = 20

    def __post_init__(self) -> None:
        if self.window_s < 1:
            raise SettingError(
                "--window", format_duration(self.window_s), "too short to count in", "at least 1s"
            )
        if self.look_back_s < 10 * self.window_s:
            raise SettingError(
                "--look-back",
                format_duration(self.look_back_s),
                "too short to say what is usual",
                f"at least ten windows: {format_duration(10 * self.window_s)}",
            )
        if not (self.factor > 1 and isfinite(self.factor)):
            raise SettingError(
                "--surge-factor", self.factor, "a usual count would be a surge", "more than 1"
            )
        if self.minimum < 2:
            raise SettingError(
                "--surge-minimum", self.minimum, "one failure is no surge", "2 or more"
            )

    @property
    def slice_s(self) -> float:
        """By what the window moves."""
        return self.window_s / _SLICES

    @property
    def step_s(self) -> float:
        """By what the look-back moves."""
        return self.look_back_s / _STEPS

    @property
    def kept_s(self) -> float:
        """For how long single slices are of use."""
        return _KEPT_WINDOWS * self.window_s


@dataclass(frozen=True, slots=True)
class Cause:
    """A fingerprint of a handler of a group."""

    group: str
    handler: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """Failures of a cause within one slice of time, a fifth of the window.

    Attributes:
        at_s: when the last of them was.
        count: how many.
        sample: one of them, as topic/partition/offset.
    """

    cause: Cause
    at_s: float
    count: int
    error_type: str = ""
    sample: str = ""


@dataclass(frozen=True, slots=True)
class NewCause:
    """The first failure of a cause in the look-back."""

    first: Sighting


@dataclass(frozen=True, slots=True)
class Surge:
    """A cause fails far more often: `count` in the window, where `usual` is the mean."""

    last: Sighting
    count: int
    usual: float


Alert = NewCause | Surge


@dataclass(slots=True)
class _History:
    """What is remembered of a cause: counts by slice and by step, the newest failure."""

    last_s: float = -inf
    slices: Counter[int] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    surging_until_s: float = -inf


class Detection:
    """What was seen, and what of that is worth a word.

    Args:
        rules: what is.
        live_from_s: what failed before is history, whenever it is seen.
    """

    def __init__(self, rules: Rules, live_from_s: float) -> None:
        self._rules = rules
        self._live_from_s = live_from_s
        self._known_from_s = live_from_s
        self._causes: dict[Cause, _History] = {}

    def learn(self, sightings: Iterable[Sighting], now_s: float) -> None:
        """Remember them, and raise nothing.

        Args:
            sightings: in any order; those older than `Rules.kept_s` may be of a whole step.
            now_s: the time of the wall's clock.
        """
        for each in sightings:
            recent = each.at_s >= now_s - self._rules.kept_s
            self._add(self._causes.setdefault(each.cause, _History()), each, of_a_slice=recent)
        self._forget()

    def take(self, sightings: Iterable[Sighting], now_s: float) -> list[Alert]:
        """Remember them, and say which are new and which make a surge.

        Args:
            sightings: in any order.
            now_s: the time of the wall's clock.
        """
        found: list[Alert] = []
        for each in sorted(sightings, key=lambda each: each.at_s):
            if each.at_s < now_s - self._rules.look_back_s:
                continue
            history = self._causes.setdefault(each.cause, _History())
            live = self._is_live(each)
            if live and history.last_s < each.at_s - self._rules.look_back_s:
                found.append(NewCause(each))
            self._add(history, each, of_a_slice=True)
            surge = self._surge(history, each) if live else None
            if surge is not None:
                if history.surging_until_s < now_s:
                    found.append(surge)
                history.surging_until_s = now_s + 2 * self._rules.window_s
        self._forget()
        return found

    def surging(self, now_s: float) -> Counter[tuple[str, str]]:
        """How many causes are in a surge, by group and handler."""
        return Counter(
            (cause.group, cause.handler)
            for cause, history in self._causes.items()
            if history.surging_until_s >= now_s
        )

    def _is_live(self, seen: Sighting) -> bool:
        return seen.at_s > self._live_from_s

    def _add(self, history: _History, seen: Sighting, *, of_a_slice: bool) -> None:
        rules = self._rules
        history.last_s = max(history.last_s, seen.at_s)
        if of_a_slice and self._is_live(seen):
            history.slices[floor(seen.at_s / rules.slice_s)] += seen.count
        history.steps[floor(seen.at_s / rules.step_s)] += seen.count
        self._known_from_s = min(self._known_from_s, seen.at_s)
        oldest_slice = floor((history.last_s - rules.kept_s) / rules.slice_s)
        for old in [index for index in history.slices if index < oldest_slice]:
            del history.slices[old]
        oldest_step = floor(history.last_s / rules.step_s) - _STEPS
        for old in [index for index in history.steps if index < oldest_step]:
            del history.steps[old]

    def _surge(self, history: _History, seen: Sighting) -> Surge | None:
        rules = self._rules
        newest = floor(seen.at_s / rules.slice_s)
        count = sum(history.slices[index] for index in range(newest - _SLICES + 1, newest + 1))
        first = floor(seen.at_s / rules.step_s) - _STEPS + 1
        since_s = max(self._known_from_s, first * rules.step_s)
        before_s = (newest - _SLICES + 1) * rules.slice_s - since_s
        if count < rules.minimum or before_s < rules.kept_s:
            return None
        within = sum(n for index, n in history.steps.items() if index >= first)
        usual = max(within - count, 0) / before_s * rules.window_s
        return Surge(seen, count, usual) if count >= rules.factor * usual else None

    def _forget(self) -> None:
        """Keep to the bound; a tenth more goes, so that it is not reached again at once."""
        if len(self._causes) <= MOST_CAUSES:
            return
        spare = len(self._causes) - MOST_CAUSES + MOST_CAUSES // 10
        for cause in nsmallest(spare, self._causes, key=lambda each: self._causes[each].last_s):
            del self._causes[cause]
