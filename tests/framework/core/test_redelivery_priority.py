"""A redelivery goes ahead of first deliveries: it has waited its time in the tier."""

from __future__ import annotations

from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import TIER, HeldWorld


def test_what_is_due_goes_ahead_of_the_backlog() -> None:
    """Before all that the executor does not have yet; records of a source topic are the last."""
    world = HeldWorld(HandlerRules("bill", concurrency=1))
    world.assign()
    world.assign(topic=TIER)
    world.read([0, 1])
    world.redeliver([0])
    world.read([2])
    started = []
    while world.startable():
        delivery = world.start()
        started.append((delivery.topic, delivery.offset))
        world.finish(delivery)
    assert started == [("orders", 0), (TIER, 0), ("orders", 1), ("orders", 2)]
