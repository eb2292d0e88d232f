"""HandlerOutcome: what the workers of all runs did with an order about a handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ackfloor.operations.noted import Ending, counts_of
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class HandlerOutcome:
    """What all runs did, as JSON shows it.

    Attributes:
        for_s: how long it lasts; None until further notice.
        applied: run -> its workers that did it.
        refused: run, and worker -> why it did nothing.
        silent: run and worker, of those that have not answered.
    """

    action: str
    handler: str
    for_s: float | None
    reason: str
    applied: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def add(self, run: str, workers: Mapping[str, Any]) -> None:
        """One run's answer."""
        self.applied[run] = workers["applied"]
        self.refused |= {f"{run} worker {n}": why for n, why in workers["refused"].items()}
        self.silent += [f"{run} worker {n}" for n in workers["silent"]]

    @property
    def whole(self) -> bool:
        """Whether every worker did it."""
        return not (self.refused or self.silent)

    @property
    def counts(self) -> dict[str, int]:
        """How many workers did it, and how many did not."""
        done = sum(map(len, self.applied.values()))
        return counts_of(done, refused=len(self.refused), silent=len(self.silent))

    def ask(self, runs: Runs, path: str, body: Mapping[str, Any], ending: Ending) -> None:
        """Have all runs do it, and say in `ending` how that ended.

        Args:
            path: which of their controls.

        Raises:
            ControlFailed: the only run does not answer, or refuses.
        """
        for run, answer in runs.post(path, body, self.refused):
            self.add(run, answer["workers"])
        ending.whole, ending.counts = self.whole, self.counts
