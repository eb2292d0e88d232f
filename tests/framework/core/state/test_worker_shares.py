"""Which part of the group a worker is: of a breaker's rate, and of a handler's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackfloor.core.records.record import TopicPartition
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.worker_state import TIERS_PART, Route
from tests.framework.core.worlds import TIER, World

RULES = HandlerRules("bill", rate_per_s=100.0)


def handler_of(world: World) -> HandlerState:
    """Its one handler."""
    return world.engine.state.handlers["bill"]


def rate_of(world: World) -> float:
    """This worker's part of the rate."""
    return world.engine.state.rate_of(handler_of(world))


def test_the_part_is_that_of_the_source_partitions() -> None:
    """A hundredth goes by the retry partitions, which may be elsewhere."""
    world = World(RULES)
    world.engine.counted({"orders": 4})
    assert rate_of(world) == 0.0
    world.assign(0)
    assert rate_of(world) == pytest.approx(99.0 / 4)
    world.assign(1)
    assert rate_of(world) == pytest.approx(99.0 / 2)
    world.assign(0, topic=TIER)
    assert rate_of(world) == pytest.approx(99.0 / 2 + 100.0 * TIERS_PART / 4)
    world.engine.drop([TopicPartition("orders", 0)], lost=False)
    assert rate_of(world) == pytest.approx(99.0 / 4 + 0.25)


def test_all_parts_together_are_the_rate() -> None:
    """Who has everything starts all of it."""
    world = World(RULES)
    world.engine.counted({"orders": 4})
    for number in range(4):
        world.assign(number)
        world.assign(number, topic=TIER)
    assert rate_of(world) == pytest.approx(100.0)


def test_without_retry_topics_the_sources_have_all_of_it() -> None:
    """Of several topics all partitions count."""
    world = World(RULES, {"orders": Route("bill", "orders"), "returns": Route("bill", "returns")})
    world.engine.counted({"orders": 3, "returns": 5})
    world.assign(2)
    assert rate_of(world) == pytest.approx(100.0 / 8)


def test_without_topics_there_is_no_part() -> None:
    """Its handler is here, and nothing of it is read."""
    world = World(RULES, {})
    assert rate_of(world) == 0.0
    assert world.engine.state.share_of(handler_of(world)) == 1.0


def test_without_a_rate_there_is_nothing_to_share() -> None:
    """It is asked for nowhere then."""
    world = World()
    assert rate_of(world) == 0.0


def test_a_topic_that_grows_makes_the_part_smaller() -> None:
    """As soon as that is told; a count never falls."""
    world = World(RULES, {"orders": Route("bill", "orders")})
    world.engine.counted({"orders": 2})
    world.assign(0)
    rate = handler_of(world).rate
    assert rate is not None
    rate.look(50.0, 1, 0.0)
    rate.look(50.0, 1, 10.0)
    world.engine.counted({"orders": 2, "other": 9})
    world.engine.counted({"orders": 4})
    assert rate_of(world) == pytest.approx(25.0)
    # What has gathered is lost with the part, but for a call.
    assert rate.tokens == 1
    world.engine.counted({"orders": 1})
    assert rate_of(world) == pytest.approx(25.0)


def test_a_breakers_share_goes_by_the_counts_that_were_told() -> None:
    """Of sources and retry topics together."""
    world = World(replace(RULES, rate_per_s=None))
    world.engine.counted({"orders": 12})
    world.assign(0)
    assert world.engine.state.share_of(handler_of(world)) == pytest.approx(1 / 16)
