"""The consumer's own positions: past what never arrives, never past what was not registered."""

from __future__ import annotations

from ackfloor.core.records.record import TopicPartition
from tests.framework.core.worlds import World


def test_a_trailing_hole_moves_the_floor() -> None:
    """Markers at the end of the log deliver nothing, and the floor gets past them."""
    world = World()
    world.assign()
    world.read([0])
    world.finish(world.start())
    world.engine.passed({("orders", 0): 5})
    assert world.floor() == 5


def test_records_read_while_stopping_are_not_passed() -> None:
    """What is read while a partition leaves is not registered, so the floor waits before it."""
    world = World()
    world.assign()
    world.read([0])
    world.finish(world.start())
    leaving = [TopicPartition("orders", 0)]
    world.engine.stop(leaving)
    world.read([1, 2])
    world.engine.passed({("orders", 0): 3, ("elsewhere", 0): 9})
    assert [final.position for final in world.engine.final_positions(leaving)] == [1]
