"""RetryRequests: `POST /retry` at the run's address, about records that wait in retry topics.

    POST /retry
    Authorization: Bearer <token>

    {"action": "promote", "topic": "orders--billing--retry-10m", "places": {"0": [17, 21]}}

Actions are `count`, `promote` and `bury`; `places` maps partitions to offsets. The token is that of
settings, see `run_control`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ackfloor.live.retry_orders import Action, retry_order
from ackfloor.live.run_control import WAIT_S, BadRequest, TokenControl
from ackfloor.live.worker_orders import Answers, Tree

PATH = "/retry"
#: Records in one request.
MOST = 2_500
_FORM = 'the body is {"action": "promote", "topic": name, "places": {"0": [17, 21]}}'
_LARGEST = 2**63 - 1

Ask = Callable[[Tree, float], Answers]


class RetryRequests(TokenControl[Ask]):
    """Answers `POST /retry`."""

    def answer(self, tree: Any) -> object:
        """Count waiting records, or end their wait."""
        action, topic, places = _read(tree)
        answers = self._does(retry_order(action, topic, places), WAIT_S)
        return {
            "action": action.value,
            "count": sum(each["count"] for each in answers.by_worker.values()),
            "workers": answers.workers(),
        }


def _read(tree: Any) -> tuple[Action, str, dict[int, list[int]]]:
    """Check the body and take it apart."""
    if not isinstance(tree, dict) or tree.keys() != {"action", "topic", "places"}:
        raise BadRequest(_FORM)
    action, topic, places = tree["action"], tree["topic"], tree["places"]
    if action not in list(Action):
        raise BadRequest(f"action {str(action)[:20]!r}: one of {', '.join(Action)}")
    if not (isinstance(topic, str) and isinstance(places, dict)):
        raise BadRequest(_FORM)
    found = {_number(partition): _offsets(offsets) for partition, offsets in places.items()}
    if not 0 < sum(map(len, found.values())) <= MOST:
        raise BadRequest(f"1 to {MOST:,} offsets in one request")
    return Action(action), topic, found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise BadRequest(f"partition {text[:20]!r}: not a number")
    return int(text)


def _offsets(values: object) -> list[int]:
    if not isinstance(values, list):
        raise BadRequest(_FORM)
    for value in values:
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise BadRequest(f"offset {str(value)[:20]!r}: not an offset")
    return values
