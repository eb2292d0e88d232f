"""HandlerOrder: an order about a handler to all workers of some runs, and what they did with it.

Each run passes an order to all its workers, and to those that start later, until the run ends. So
a run that is not asked goes on as before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from ackfloor.operations.noted import counts_of
from ackfloor.operations.run_orders import RunOrder
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class HandlerOutcome:
    """What all runs did, as JSON shows it.

    Attributes:
        for_s: how long it lasts; None until further notice.
        applied: run -> its workers that did it.
        refused: run, and worker -> why it did nothing.
        silent: run and worker, of those that have not answered.
        unknown: run -> why nobody knows whether it did it: it got the order, and has not answered.
    """

    action: str
    handler: str
    for_s: float | None
    reason: str
    applied: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    def add(self, run: str, workers: Mapping[str, Any]) -> None:
        """One run's answer."""
        self.applied[run] = workers["applied"]
        self.refused |= {f"{run} worker {n}": why for n, why in workers["refused"].items()}
        self.silent += [f"{run} worker {n}" for n in workers["silent"]]

    @property
    def whole(self) -> bool:
        """Whether every worker did it."""
        return not (self.refused or self.silent or self.unknown)

    @property
    def counts(self) -> dict[str, int]:
        """How many workers did it, and how many did not."""
        done = sum(map(len, self.applied.values()))
        refused, silent, unknown = map(len, (self.refused, self.silent, self.unknown))
        return counts_of(done, refused=refused, silent=silent, unknown=unknown)


ActionT = TypeVar("ActionT", bound=StrEnum)
HandlerOutcomeT = TypeVar("HandlerOutcomeT", bound=HandlerOutcome)


@dataclass(frozen=True, slots=True)
class HandlerOrder(RunOrder[HandlerOutcomeT], Generic[ActionT, HandlerOutcomeT]):
    """An order about a handler: it lasts until it expires, is taken back, or the run ends.

    Attributes:
        path: which control of a run takes it.
        family: the command whose name its own begins with.
        for_s: seconds after which it expires; None: not before the run ends.
        reason: why, for people.
    """

    path: ClassVar[str]
    family: ClassVar[str]

    action: ActionT
    handler: str
    for_s: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return f"{self.family} {self.action}"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.handler

    def arguments(self, runs: Runs) -> dict[str, Any]:
        """What its note says of it."""
        return {"for_s": self.for_s, "runs": list(runs.tokens)}

    def _do(self, runs: Runs) -> HandlerOutcomeT:
        outcome = self._outcome()
        body: dict[str, Any] = {"action": self.action, "handler": self.handler}
        if not self._takes_back:
            body["reason"] = self.reason
            body |= {} if self.for_s is None else {"for_s": self.for_s}
        for run, answer in runs.post(self.path, body, outcome.refused, outcome.unknown):
            outcome.add(run, answer["workers"])
        return outcome

    @abstractmethod
    def _outcome(self) -> HandlerOutcomeT:
        """What it does before a run has answered."""

    @property
    @abstractmethod
    def _takes_back(self) -> bool:
        """Whether it takes back an earlier order, and so lasts for no time."""
