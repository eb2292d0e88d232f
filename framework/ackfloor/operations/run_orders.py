"""Orders to runs: what all of them are asked to do, and how that is noted.

An order that knows what it means can be judged first: the runs count, and do nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from ackfloor.operations.noted import Ending
from ackfloor.operations.runs import Runs


class Outcome(Protocol):
    """What all runs did with an order."""

    @property
    def whole(self) -> bool:
        """Whether all that was meant was reached."""

    @property
    def counts(self) -> dict[str, int]:
        """How many of what were done, or were not."""

    @property
    def unknown(self) -> Mapping[str, str]:
        """Run -> why nobody knows whether it did it, of those that got it."""


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


class RunOrder(ABC, Generic[OutcomeT]):
    """An order to runs."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Under which it is noted."""

    @property
    @abstractmethod
    def target(self) -> str:
        """What it is done to."""

    def act(self, runs: Runs, ending: Ending) -> OutcomeT:
        """Have all runs do it, and say in `ending` how that ended.

        Raises:
            ControlFailed: the only run does not answer, or refuses, before it did anything.
        """
        outcome = self._do(runs)
        ending.whole, ending.counts = outcome.whole, outcome.counts
        # Without a run that says that it did something, it did not fail: nobody knows.
        ending.is_known = bool(outcome.counts.get("done")) or not outcome.unknown
        return outcome

    @abstractmethod
    def _do(self, runs: Runs) -> OutcomeT:
        """Have all runs do it, and add up what they answer."""


class JudgedOrder(RunOrder[OutcomeT]):
    """An order of which the runs can say first what it would do."""

    __slots__ = ()

    def judge(self, runs: Runs) -> OutcomeT:
        """What it would do; nothing is done.

        Raises:
            ControlFailed: the only run does not answer, or refuses, before it counted anything.
        """
        return self._ask(runs, dry_run=True)

    def _do(self, runs: Runs) -> OutcomeT:
        return self._ask(runs, dry_run=False)

    @abstractmethod
    def _ask(self, runs: Runs, *, dry_run: bool) -> OutcomeT:
        """Ask all runs, and add up what they answer."""
