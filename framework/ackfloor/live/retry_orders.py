"""Retry orders: an operator's `retry promote` and `retry bury` of records in retry topics."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ackfloor.core.records.record import Now
    from ackfloor.core.scheduling.promotions import Places, Promotions
    from ackfloor.live.worker_orders import Tree


class Action(StrEnum):
    """What to do with waiting records."""

    COUNT = "count"
    PROMOTE = "promote"
    BURY = "bury"


def retry_order(action: Action, topic: str, places: Places) -> dict[str, Any]:
    """An order to the workers."""
    return {
        "action": action,
        "topic": topic,
        "places": {str(partition): list(offsets) for partition, offsets in places.items()},
    }


def carry_out_retry_order(promotions: Promotions, order: Tree, now: Now) -> dict[str, int]:
    """In a worker, on the owner thread: carry out an order; returns the answer."""
    topic = order["topic"]
    places = {int(partition): offsets for partition, offsets in order["places"].items()}
    action = Action(order["action"])
    if action is Action.PROMOTE:
        found = promotions.promote(topic, places, now)
    elif action is Action.BURY:
        found = promotions.bury(topic, places, now)
    else:
        found = promotions.waiting(topic, places)
    return {"count": found}
