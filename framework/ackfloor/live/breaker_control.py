"""BreakerControl: what is posted to the run's address about circuit breakers.

    POST /breaker
    Authorization: Bearer <token>

    {"action": "open", "handler": "bill", "for_s": 1800, "reason": "the bank is away"}

Actions are `open`, `close` and `auto`. Without `for_s`, it lasts until it is taken back or the run
ends. Who may ask is said as for settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ackfloor.control import ControlRequest
from ackfloor.core.durations import LONGEST_S
from ackfloor.core.errors import SettingError
from ackfloor.live.breakers import Action
from ackfloor.live.control import WAIT_S, refused
from ackfloor.live.requests import Change

PATH = "/breaker"
#: Characters of a reason.
LONGEST_REASON = 200
_KEYS = {"action", "handler", "for_s", "reason"}
_FORM = 'the body is {"action": "open", "handler": name, "for_s": 1800, "reason": text}'

Force = Callable[[Action, str, float | None, str, float], Change]
#: What is asked for: action, handler, for how many seconds, and why.
Asked = tuple[Action, str, float | None, str]


class BreakerControl:
    """Answers `POST /breaker`; implements `ackfloor.control.Control`.

    Args:
        token: who knows it may.
        force: `RunBreakers.force`.
        anywhere: not only from this machine.
    """

    def __init__(self, token: str, force: Force, *, anywhere: bool) -> None:
        self._token = token.encode()
        self._force = force
        self._anywhere = anywhere

    def __call__(self, request: ControlRequest) -> tuple[int, object]:
        """A status of HTTP, and what to say."""
        if (refusal := refused(request, self._token, anywhere=self._anywhere)) is not None:
            return refusal
        try:
            action, handler, for_s, reason = _read(request.body)
        except ValueError as exc:
            return 400, {"error": str(exc)}
        try:
            change = self._force(action, handler, for_s, reason, WAIT_S)
        except SettingError as exc:
            return 422, {"error": str(exc)}
        except TimeoutError as exc:
            return 503, {"error": str(exc)}
        return 200, {
            "handler": handler,
            "action": action.value,
            "for_s": for_s,
            "reason": reason,
            "workers": {
                "applied": list(change.applied),
                "refused": {str(worker): why for worker, why in change.refused.items()},
                "silent": list(change.silent),
            },
        }


def _read(body: bytes) -> Asked:
    """What a request asks for; raises ValueError."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is no JSON") from None
    if not isinstance(tree, dict) or not {"action", "handler"} <= tree.keys() <= _KEYS:
        raise ValueError(_FORM)
    action, handler = tree["action"], tree["handler"]
    for_s, reason = tree.get("for_s"), tree.get("reason", "")
    if action not in list(Action):
        raise ValueError(f"action {str(action)[:20]!r}: one of {', '.join(Action)}")
    if not (isinstance(handler, str) and isinstance(reason, str)):
        raise ValueError(_FORM)  # noqa: TRY004 -- what was posted is wrong, not a caller
    if for_s is not None and (type(for_s) not in {int, float} or not 0 < for_s <= LONGEST_S):
        raise ValueError(f"for_s {str(for_s)[:20]!r}: seconds above 0, a year at most")
    if len(reason) > LONGEST_REASON:
        raise ValueError(f"reason: at most {LONGEST_REASON} characters")
    return Action(action), handler, for_s, reason
