"""LaneRequests: `POST /lanes` at the run's address, about lanes that wait for a failed record.

    POST /lanes
    Authorization: Bearer <token>

    {"action": "retry", "handler": "bill", "keys": ["customer-7"], "places": ["orders/0/17"]}

Actions are `retry`, `delay` (with `delay_s`), `park`, `dead_letter` and `discard` (with `reason`).
`keys` are texts, `keys_base64` those that are none; `places` are topic/partition/offset of the
failed records; `"all": true` means every blocked lane and quarantined key of the handler. With
`"followers": true` what waits behind a quarantined record is dead-lettered with it, with `false` it
goes on; without it the handler's `after_dead_letter` decides. With `"dry_run": true` nothing
changes, and the answer has the `places` that are meant, where there are at most a thousand. The
token is that of settings, see `run_control`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ackfloor.core.messages.lane_order import MOST_NAMED, Action, LaneOrder
from ackfloor.core.values.durations import LONGEST_S
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.run_control import WAIT_S, BadRequest, TokenControl
from ackfloor.live.worker_orders import Answers, Tree

if TYPE_CHECKING:
    from ackfloor.core.messages.lane_order import Place
    from ackfloor.core.records.record import Now
    from ackfloor.core.scheduling.lane_orders import LaneOrders

PATH = "/lanes"
#: Keys and places in one request.
MOST = MOST_NAMED
_FORM = (
    'the body is {"action": "retry", "handler": name, "keys": ["customer-7"], '
    '"places": ["orders/0/17"]}, or "all": true in place of these two'
)
_FIELDS = {
    *("action", "handler", "keys", "keys_base64", "places", "all"),
    *("delay_s", "followers", "reason", "dry_run"),
}

Ask = Callable[[Tree, float], Answers]


class LaneRequests(TokenControl[Ask]):
    """Answers `POST /lanes`."""

    def answer(self, tree: Any) -> object:
        """Have all workers act on their blocked lanes; says what they did, and what they left."""
        order, given = _read(tree)
        answers = self._does(_encode(order), WAIT_S)
        found = {n for each in answers.by_worker.values() for n in each["found"]}
        left = Counter[str]()
        for each in answers.by_worker.values():
            left.update(each["left"])
        refused = {
            str(worker): each["refused"]
            for worker, each in answers.by_worker.items()
            if each["refused"]
        }
        done = sum(each["done"] for each in answers.by_worker.values())
        return {
            "action": order.action.value,
            "handler": order.handler,
            "dry_run": order.dry_run,
            "done": done,
            "freed": sum(each["freed"] for each in answers.by_worker.values()),
            "left": dict(left),
            "missing": [name for n, name in enumerate(given) if n not in found],
            "refused": refused,
            "workers": answers.workers(),
            **({"places": _places(answers, done)} if order.dry_run else {}),
        }


def carry_out_lane_order(lane_orders: LaneOrders, order: Tree, now: Now) -> dict[str, Any]:
    """In a worker, on the owner thread: carry out an order; returns the answer."""
    answer = lane_orders.carry_out(_decode(order), now)
    return {**asdict(answer), "found": sorted(answer.found)}


def _places(answers: Answers, done: int) -> list[str]:
    """The heads that an order would reach; none where not all of them can be named."""
    found = [
        f"{topic}/{partition}/{offset}"
        for each in answers.by_worker.values()
        for topic, partition, offset in each["places"]
    ]
    return found if len(found) == done <= MOST else []


def _encode(order: LaneOrder) -> dict[str, Any]:
    wanted = [
        base64.b64encode(each).decode() if isinstance(each, bytes) else list(each)
        for each in order.wanted
    ]
    return {**asdict(order), "wanted": wanted}


def _decode(tree: Tree) -> LaneOrder:
    wanted = tuple(map(_wanted, tree["wanted"]))
    return LaneOrder(**{**tree, "action": Action(tree["action"]), "wanted": wanted})


def _wanted(each: Any) -> bytes | Place:
    if isinstance(each, str):
        return base64.b64decode(each)
    topic, partition, offset = each
    return topic, partition, offset


def _read(tree: Any) -> tuple[LaneOrder, list[str]]:
    """The order of a body, and its keys and places as they were given."""
    if not isinstance(tree, dict) or tree.keys() - _FIELDS or not _is_text(tree.get("handler")):
        raise BadRequest(_FORM)
    action = tree.get("action")
    if action not in list(Action):
        raise BadRequest(f"action {str(action)[:20]!r}: one of {', '.join(Action)}")
    # What is named twice is meant once.
    named: dict[bytes | Place, str] = {
        **{text.encode(): text for text in _texts(tree, "keys")},
        **{_from_base64(text): text for text in _texts(tree, "keys_base64")},
        **{_place(text): text for text in _texts(tree, "places")},
    }
    if len(named) > MOST:
        raise BadRequest(f"at most {MOST:,} keys and places in one request")
    if bool(named) is (tree.get("all", False) is True):
        raise BadRequest(f'name lanes, or write "all": true; {_FORM}')
    order = LaneOrder(
        Action(action),
        tree["handler"],
        tuple(named),
        _delay_s(tree) if action == Action.DELAY else 0.0,
        _rest_goes(tree),
        reason=_reason(tree),
        dry_run=_flag(tree, "dry_run"),
    )
    return order, list(named.values())


def _texts(tree: Tree, name: str) -> list[str]:
    texts = tree.get(name, [])
    if not isinstance(texts, list) or not all(map(_is_text, texts)):
        raise BadRequest(f"{name}: a list of texts")
    return texts


def _is_text(value: object) -> bool:
    """Whether a value of JSON is a text that UTF-8 can hold: half a surrogate pair is none."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def is_base64(text: str) -> bool:
    """Whether a text is base64, as a key is written that is no text itself."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _from_base64(text: str) -> bytes:
    if not is_base64(text):
        raise BadRequest(f"keys_base64 {text[:20]!r}: not base64")
    return base64.b64decode(text)


def is_place(text: str) -> bool:
    """Whether a text names a record: topic/partition/offset."""
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    numbers = (partition, offset)
    return bool(topic) and all(n.isascii() and n.isdecimal() and len(n) < 20 for n in numbers)


def _place(text: str) -> Place:
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not is_place(text):
        raise BadRequest(f'places {text[:40]!r}: write topic/partition/offset, as "orders/0/17"')
    return topic, int(partition), int(offset)


def _delay_s(tree: Tree) -> float:
    delay_s: Any = tree.get("delay_s")
    number = isinstance(delay_s, int | float) and not isinstance(delay_s, bool)
    if not number or not 0 <= delay_s <= LONGEST_S:
        raise BadRequest(f"delay_s {str(delay_s)[:20]!r}: seconds, from 0 to {LONGEST_S:g}")
    return float(delay_s)


def _rest_goes(tree: Tree) -> bool | None:
    followers = tree.get("followers")
    if followers is None:
        return None
    if not isinstance(followers, bool):
        raise BadRequest(f"followers {str(followers)[:20]!r}: true, false, or leave it out")
    if tree["action"] != Action.DEAD_LETTER:
        raise BadRequest(
            f"followers {json.dumps(followers)}: for the action dead_letter alone; leave it out"
        )
    return followers


def _reason(tree: Tree) -> str:
    reason = tree.get("reason", "")
    if not _is_text(reason) or len(reason) > LONGEST_REASON:
        raise BadRequest(f"reason: a text of at most {LONGEST_REASON} characters")
    return " ".join(reason.split())


def _flag(tree: Tree, name: str) -> bool:
    value = tree.get(name, False)
    if not isinstance(value, bool):
        raise BadRequest(f"{name}: true or false")
    return value
