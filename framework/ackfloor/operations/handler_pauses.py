"""HandlerPause: stops a handler in all workers of some runs, or lets it go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ackfloor.live.pause_orders import PATH, PauseAction
from ackfloor.operations.handler_order import HandlerOrder, HandlerOutcome


@dataclass(slots=True)
class PauseOutcome(HandlerOutcome):
    """What all runs did; `for_s` is how long a pause lasts."""


@dataclass(frozen=True, slots=True)
class HandlerPause(HandlerOrder[PauseAction, PauseOutcome]):
    """An order to pause a handler, or to let it go on.

    Attributes:
        for_s: seconds after which a pause ends by itself; None until it is resumed or the run ends.
        reason: why, for people.
    """

    path: ClassVar[str] = PATH
    family: ClassVar[str] = "handlers"

    def _outcome(self) -> PauseOutcome:
        return PauseOutcome(self.action, self.handler, self.for_s, self.reason)

    @property
    def _takes_back(self) -> bool:
        return self.action is PauseAction.RESUME
