"""EarlyControl: what is posted to the run's address about records that wait in retry topics.

    POST /retry
    Authorization: Bearer <token>

    {"action": "promote", "topic": "orders--billing--retry-10m", "places": {"0": [17, 21]}}

Actions are `count`, `promote` and `bury`; a place is a partition and its offsets. Who may ask is
said as for settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ackfloor.control import ControlRequest
from ackfloor.core.early import Places
from ackfloor.live.control import WAIT_S, refused
from ackfloor.live.early import Action, EarlyResult

PATH = "/retry"
#: Records in one request.
MOST = 2_500
_FORM = 'the body is {"action": "promote", "topic": name, "places": {"0": [17, 21]}}'
_LARGEST = 2**63 - 1

Ask = Callable[[Action, str, Places, float], EarlyResult]


class EarlyControl:
    """Answers `POST /retry`; implements `ackfloor.control.Control`.

    Args:
        token: who knows it may.
        ask: `RunEarly.ask`.
        anywhere: not only from this machine.
    """

    def __init__(self, token: str, ask: Ask, *, anywhere: bool) -> None:
        self._token = token.encode()
        self._ask = ask
        self._anywhere = anywhere

    def __call__(self, request: ControlRequest) -> tuple[int, object]:
        """A status of HTTP, and what to say."""
        if (refusal := refused(request, self._token, anywhere=self._anywhere)) is not None:
            return refusal
        try:
            action, topic, places = _read(request.body)
        except ValueError as exc:
            return 400, {"error": str(exc)}
        try:
            result = self._ask(action, topic, places, WAIT_S)
        except TimeoutError as exc:
            return 503, {"error": str(exc)}
        return 200, {
            "action": action.value,
            "count": result.count,
            "workers": {"answered": list(result.answered), "silent": list(result.silent)},
        }


def _read(body: bytes) -> tuple[Action, str, dict[int, list[int]]]:
    """What a request asks for; raises ValueError."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is no JSON") from None
    if not isinstance(tree, dict) or tree.keys() != {"action", "topic", "places"}:
        raise ValueError(_FORM)
    action, topic, places = tree["action"], tree["topic"], tree["places"]
    if action not in list(Action):
        raise ValueError(f"action {str(action)[:20]!r}: one of {', '.join(Action)}")
    if not (isinstance(topic, str) and isinstance(places, dict)):
        raise ValueError(_FORM)  # noqa: TRY004 -- what was posted is wrong, not a caller
    found = {_number(partition): _offsets(offsets) for partition, offsets in places.items()}
    if not 0 < sum(map(len, found.values())) <= MOST:
        raise ValueError(f"1 to {MOST:,} offsets in one request")
    return Action(action), topic, found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError(f"partition {text[:20]!r}: not a number")
    return int(text)


def _offsets(values: object) -> list[int]:
    if not isinstance(values, list):
        raise ValueError(_FORM)  # noqa: TRY004 -- as above
    for value in values:
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise ValueError(f"offset {str(value)[:20]!r}: not an offset")
    return values
