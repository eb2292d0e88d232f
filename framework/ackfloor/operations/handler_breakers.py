"""HandlerBreaker: keeps a handler's circuit breaker open or closed, or returns it to automatic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ackfloor.live.breaker_orders import Action as BreakerAction
from ackfloor.live.breaker_requests import PATH
from ackfloor.operations.handler_order import HandlerOrder, HandlerOutcome


@dataclass(slots=True)
class BreakerOutcome(HandlerOutcome):
    """What all runs did; `for_s` is how long the breaker is kept."""


@dataclass(frozen=True, slots=True)
class HandlerBreaker(HandlerOrder[BreakerAction, BreakerOutcome]):
    """An order about a handler's circuit breaker.

    Attributes:
        for_s: seconds after which it is automatic again; None: not before the run ends.
        reason: why, for people.
    """

    path: ClassVar[str] = PATH
    family: ClassVar[str] = "breaker"

    def _outcome(self) -> BreakerOutcome:
        return BreakerOutcome(self.action, self.handler, self.for_s, self.reason)

    @property
    def _takes_back(self) -> bool:
        return self.action is BreakerAction.AUTO
