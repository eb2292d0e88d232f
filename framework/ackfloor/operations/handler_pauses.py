"""HandlerPause: stops a handler in all workers of some runs, or lets it go on.

Each run passes an order to all its workers, and to those that start later, until the run ends. So
a run that is not asked goes on as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ackfloor.live.pause_orders import PATH, PauseAction
from ackfloor.operations.handler_outcome import HandlerOutcome
from ackfloor.operations.noted import Ending
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class PauseOutcome(HandlerOutcome):
    """What all runs did; `for_s` is how long a pause lasts."""


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
        outcome.ask(runs, PATH, body, ending)
        return outcome
