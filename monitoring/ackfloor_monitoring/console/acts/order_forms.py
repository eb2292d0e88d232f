"""Orders: what a form asks for, checked; each is one of `ackfloor.operations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ackfloor import SettingError
from ackfloor.cli.shared.run_address import checked_reason, order_terms
from ackfloor.core.values.durations import parse_duration
from ackfloor.operations import (
    BreakerAction,
    HandlerBreaker,
    HandlerPause,
    LaneAction,
    LaneMove,
    PauseAction,
    RetryAction,
    RetryMove,
)
from ackfloor_monitoring.console.forms import Fields

#: What an order does.
Does: TypeAlias = HandlerBreaker | HandlerPause | LaneMove | RetryMove

#: From so many lanes or records on, and for what can't be undone, a reason is asked for.
MANY: Final = 10
#: What else cannot: nobody tries such a record again by itself.
_ENDS: Final = frozenset({LaneAction.DISCARD, RetryAction.BURY})


@dataclass(frozen=True, slots=True)
class Order:
    """One that somebody asked for.

    Attributes:
        group: the consumer group whose runs get it.
        page: the path of the page that asked.
    """

    group: str
    does: Does
    page: str

    def with_reason(self, reason: str) -> Order:
        """The same, with why it is done; raises SettingError for a text that is too long."""
        text = checked_reason("reason", " ".join(reason.split()))
        if isinstance(self.does, HandlerPause | HandlerBreaker):
            return replace(self, does=replace(self.does, reason=text))
        if isinstance(self.does, LaneMove) and self.does.action is LaneAction.DISCARD:
            # The workers log it with each record.
            return replace(self, does=replace(self.does, more={**self.does.more, "reason": text}))
        return self

    def needs_reason(self, count: int) -> bool:
        """Whether it is not done without a reason.

        Much is meant, a record is given up, or a circuit breaker no longer decides by itself.
        """
        if isinstance(self.does, HandlerPause):
            return False
        if isinstance(self.does, HandlerBreaker):
            return self.does.action is not BreakerAction.AUTO
        return count >= MANY or self.does.action in _ENDS


def read_order(form: Fields) -> Order:
    """The order of a form about lanes or a handler.

    Raises:
        SettingError: a field has no value, or an invalid one.
    """
    handler, group = _given(form, "handler"), _given(form, "group")
    action = _given(form, "action")
    if action in set(PauseAction):
        return Order(group, _pause(PauseAction(action), handler, form), "handlers")
    if action in set(BreakerAction):
        return Order(group, _breaker(BreakerAction(action), handler, form), "handlers")
    if action in set(LaneAction):
        return Order(group, _move(LaneAction(action), handler, form), "lanes")
    known = ", ".join((*PauseAction, *BreakerAction, *LaneAction))
    raise SettingError("action", action, "there is no such action", f"one of {known}")


def _given(form: Fields, name: str) -> str:
    value = form.get(name)
    if not value:
        raise SettingError(name, value, "is missing", "send the form of a page of the console")
    return value


def _pause(action: PauseAction, handler: str, form: Fields) -> HandlerPause:
    if action is PauseAction.RESUME:
        return HandlerPause(action, handler)
    for_ = form.get("for") or None
    return HandlerPause(action, handler, **order_terms(for_, None))


def _breaker(action: BreakerAction, handler: str, form: Fields) -> HandlerBreaker:
    if action is BreakerAction.AUTO:
        return HandlerBreaker(action, handler)
    return HandlerBreaker(action, handler, **order_terms(form.get("keep") or None, None))


def _move(action: LaneAction, handler: str, form: Fields) -> LaneMove:
    places = list(dict.fromkeys(form.all("place")))
    if bool(places) is bool(form.get("all")):
        fix = "tick lanes, or all of the handler"
        raise SettingError("place", places or "", "lanes are named, or all are meant", fix)
    which: Mapping[str, Any] = {"places": places} if places else {"all": True}
    more: dict[str, Any] = {}
    if action is LaneAction.DELAY:
        more["delay_s"] = parse_duration(_given(form, "delay"), field="delay")
    if action is LaneAction.DEAD_LETTER and (followers := form.get("followers")):
        more["followers"] = followers == "with"
    return LaneMove(action, handler, which, more)
