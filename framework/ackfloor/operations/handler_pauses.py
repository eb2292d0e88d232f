"""HandlerPause: stops a handler in all workers of some runs, or lets it go on.

Each run passes an order to all its workers, and to those that start later, until the run ends. So
a run that is not asked goes on as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ackfloor.live.pause_orders import PATH, PauseAction
from ackfloor.operations.noted import Ending, counts_of
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class PauseOutcome:
    """What all runs did, as JSON shows it.

    Attributes:
        for_s: how long the pause lasts; None until further notice.
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


@dataclass(frozen=True, slots=True)
class HandlerPause:
    """An order to pause a handler, or to let it go on.

    Attributes:
        for_s: seconds after which a pause ends by itself; None until it is resumed or the run ends.
        reason: why, for people.
    """

    action: PauseAction
    handler: str
    for_s: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return f"handlers {self.action}"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.handler

    def arguments(self, runs: Runs) -> dict[str, Any]:
        """What its note says of it."""
        return {"for_s": self.for_s, "runs": list(runs.tokens)}

    def act(self, runs: Runs, ending: Ending) -> PauseOutcome:
        """Have all runs do it, and say in `ending` how that ended.

        Raises:
            ControlFailed: the only run does not answer, or refuses.
        """
        outcome = PauseOutcome(self.action, self.handler, self.for_s, self.reason)
        body: dict[str, Any] = {"action": self.action, "handler": self.handler}
        if self.action is PauseAction.PAUSE:
            body["reason"] = self.reason
            body |= {} if self.for_s is None else {"for_s": self.for_s}
        for run, answer in runs.post(PATH, body, outcome.refused):
            outcome.add(run, answer["workers"])
        ending.whole, ending.counts = outcome.whole, outcome.counts
        return outcome
