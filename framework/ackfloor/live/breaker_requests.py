"""BreakerControl: `POST /breaker` at the run's address, which forces a circuit breaker.

    POST /breaker
    Authorization: Bearer <token>

    {"action": "open", "handler": "bill", "for_s": 1800, "reason": "the bank is away"}

Actions are `open`, `close` and `auto`. Without `for_s`, it lasts until `auto` takes it back or the
run ends. The token is that of settings, see `run_control`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ackfloor.core.values.durations import LONGEST_S
from ackfloor.live.breaker_orders import Action
from ackfloor.live.requests import Change
from ackfloor.live.run_control import WAIT_S, BadRequest, TokenControl

PATH = "/breaker"
#: Characters of a reason.
LONGEST_REASON = 200
_KEYS = {"action", "handler", "for_s", "reason"}
_FORM = 'the body is {"action": "open", "handler": name, "for_s": 1800, "reason": text}'

Force = Callable[[Action, str, float | None, str, float], Change]
#: Action, handler, for how many seconds, and why.
Asked = tuple[Action, str, float | None, str]


class BreakerControl(TokenControl[Force]):
    """Answers `POST /breaker` by `RunBreakers.force`."""

    def answer(self, tree: Any) -> object:
        """Open or close a breaker, or return it to automatic."""
        action, handler, for_s, reason = _read(tree)
        change = self._does(action, handler, for_s, reason, WAIT_S)
        return {
            "handler": handler,
            "action": action.value,
            "for_s": for_s,
            "reason": reason,
            "workers": change.workers(),
        }


def _read(tree: Any) -> Asked:
    """Check the body and take it apart."""
    if not isinstance(tree, dict) or not {"action", "handler"} <= tree.keys() <= _KEYS:
        raise BadRequest(_FORM)
    action, handler = tree["action"], tree["handler"]
    for_s, reason = tree.get("for_s"), tree.get("reason", "")
    if action not in list(Action):
        raise BadRequest(f"action {str(action)[:20]!r}: one of {', '.join(Action)}")
    if not (isinstance(handler, str) and isinstance(reason, str)):
        raise BadRequest(_FORM)
    if for_s is not None and (type(for_s) not in {int, float} or not 0 < for_s <= LONGEST_S):
        raise BadRequest(f"for_s {str(for_s)[:20]!r}: seconds above 0, a year at most")
    if len(reason) > LONGEST_REASON:
        raise BadRequest(f"reason: at most {LONGEST_REASON} characters")
    # One line: it is shown in tables and logged.
    return Action(action), handler, for_s, " ".join(reason.split())
