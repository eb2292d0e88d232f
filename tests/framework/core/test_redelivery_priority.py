"""A redelivery goes ahead of first deliveries: it has waited its time in the tier."""

from __future__ import annotations

from ackfloor.core.messages import Dispatch
from tests.framework.core.worlds import World, tier_record


def test_what_is_due_goes_ahead_of_the_backlog() -> None:
    """Records of a tier are dispatched ahead, those of a source topic at the end."""
    world = World()
    world.assign()
    world.assign(topic="orders--g--retry-1s")
    world.read([0, 1])
    world.engine.polled([tier_record("orders--g--retry-1s", 0, 0, world.now.wall_ms)], world.now)
    world.take()
    dispatched = [c for c in world.commands if isinstance(c, Dispatch)]
    assert [command.ahead for command in dispatched] == [False, True]
