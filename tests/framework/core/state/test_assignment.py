"""Assignment: one partition for one epoch, and when its floor last moved."""

from __future__ import annotations

from ackfloor.core.state.assignment import HandlerRules, HandlerState
from tests.framework.core.worlds import START_MS, World


def test_a_floor_keeps_the_time_it_last_moved() -> None:
    """How long a record has blocked its partition is read from it."""
    world = World()
    world.assign()
    assignment = world.engine.assignments["orders", 0]
    world.read([0, 1])
    world.tick(3)
    assert assignment.floor_advanced_ms == START_MS
    world.finish(world.start())
    world.tick(3)
    assert (assignment.last_floor, assignment.floor_advanced_ms) == (1, START_MS + 6_000)
    world.tick(3)
    assert assignment.floor_advanced_ms == START_MS + 6_000


def test_the_default_rules_are_those_of_the_contract() -> None:
    """64 slots, 60 s, unordered, answered by return."""
    rules = HandlerRules("bill")
    assert (rules.ordering, rules.concurrency, rules.consume_timeout_s) == ("unordered", 64, 60.0)
    assert (rules.manual, rules.max_extend_s) == (False, None)
    assert rules.policy.schedule() == (1.0, 5.0, 25.0, 125.0, 600.0, 600.0)


def test_a_new_handler_is_not_held() -> None:
    """It has all the room there is for redeliveries."""
    handler = HandlerState(HandlerRules("bill", concurrency=10))
    assert (handler.held_until_s, handler.held_reason, handler.retry_room()) == (0.0, "", 5)
