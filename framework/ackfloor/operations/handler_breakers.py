"""HandlerBreaker: keeps a handler's circuit breaker open or closed, or returns it to automatic.

As every order about a handler, it reaches all workers of the runs that are asked, and those that
start later, until the run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ackfloor.live.breaker_orders import Action as BreakerAction
from ackfloor.live.breaker_requests import PATH
from ackfloor.operations.handler_outcome import HandlerOutcome
from ackfloor.operations.noted import Ending
from ackfloor.operations.runs import Runs


@dataclass(slots=True)
class BreakerOutcome(HandlerOutcome):
    """What all runs did; `for_s` is how long the breaker is kept."""


@dataclass(frozen=True, slots=True)
class HandlerBreaker:
    """An order about a handler's circuit breaker.

    Attributes:
        for_s: seconds after which it is automatic again; None: not before the run ends.
        reason: why, for people.
    """

    action: BreakerAction
    handler: str
    for_s: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Under which it is noted."""
        return f"breaker {self.action}"

    @property
    def target(self) -> str:
        """What it is done to."""
        return self.handler

    def arguments(self, runs: Runs) -> dict[str, Any]:
        """What its note says of it."""
        return {"for_s": self.for_s, "runs": list(runs.tokens)}

    def act(self, runs: Runs, ending: Ending) -> BreakerOutcome:
        """Have all runs do it, and say in `ending` how that ended.

        Raises:
            ControlFailed: the only run does not answer, or refuses.
        """
        outcome = BreakerOutcome(self.action, self.handler, self.for_s, self.reason)
        body: dict[str, Any] = {"action": self.action, "handler": self.handler}
        if self.action is not BreakerAction.AUTO:
            body["reason"] = self.reason
            body |= {} if self.for_s is None else {"for_s": self.for_s}
        outcome.ask(runs, PATH, body, ending)
        return outcome
