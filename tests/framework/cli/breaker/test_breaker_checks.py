"""What `ackfloor doctor` says of circuit breakers that can't work as they are meant to."""

from __future__ import annotations

from typing import Any

import pytest

from ackfloor import App, CircuitBreaker, RetryPolicy
from ackfloor.cli.breaker.breaker_checks import of_partitions, of_policies
from ackfloor.core.messages.events import BreakerOpened
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.declare.registration import HandlerSpec
from tests.framework.core.worlds import HeldWorld

BOOM = Failed(Failure("Boom", "x"))


def specs(*topics: str, **options: Any) -> list[HandlerSpec]:
    """One handler."""
    app = App("billing")

    async def bill(order: bytes) -> None: ...

    app.handler(*(topics or ("orders",)), **options)(bill)
    return list(app.handlers)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retry": RetryPolicy.fixed("1s", 1)},
        {"retry": RetryPolicy.fixed("1s", 0), "breaker": None},
        {"retry": RetryPolicy.fixed("1s", 0), "breaker": CircuitBreaker(failures=1)},
    ],
)
def test_who_retries_or_has_no_breaker_is_not_named(options: dict[str, Any]) -> None:
    """There is nothing to say."""
    assert list(of_policies(specs(**options))) == []


def test_a_policy_without_redeliveries_is_named_with_its_bound() -> None:
    """So many are dead-lettered before it opens."""
    [found] = of_policies(
        specs(retry=RetryPolicy.fixed("1s", 0), breaker=CircuitBreaker(20, 7, "30s"))
    )
    assert (found.check, found.state) == ("breaker of bill", "warn")
    assert "up to 19 records (6 where nothing has succeeded for 30s)" in found.detail
    assert "handlers.bill.retry.max_redeliveries to 1" in found.fix


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({"ordering": "partition"}, {"orders": 10}),
        ({"ordering": "partition"}, {}),
        ({"ordering": "key"}, {"orders": 4}),
        ({"ordering": "partition", "on_failure": "park"}, {"orders": 4}),
        ({"ordering": "partition", "breaker": None}, {"orders": 4}),
        ({"ordering": "partition", "breaker": CircuitBreaker(quiet_failures=4)}, {"orders": 4}),
        ({}, {"orders": 1}),
    ],
)
def test_who_has_enough_to_judge_by_is_not_named(
    options: dict[str, Any], partitions: dict[str, int]
) -> None:
    """Nor whose topic is not there: that is told elsewhere."""
    assert list(of_partitions(specs(**options), partitions)) == []


def test_too_few_partitions_are_named_with_their_bound() -> None:
    """Those of all its topics count; without an end of the policy it never opens."""
    lanes = {"orders": 3, "refunds": 1, "others": 50}
    [found] = of_partitions(specs("orders", "refunds", ordering="partition"), lanes)
    assert (found.check, found.state) == ("breaker of bill", "warn")
    assert "at least 46 records (6 where nothing has succeeded for 5m)" in found.detail
    assert found.fix == "set handlers.bill.breaker.quiet_failures to 4 or less"
    endless = RetryPolicy.fixed("1s", None)
    [found] = of_partitions(specs(ordering="partition", retry=endless), lanes)
    assert "never opens (quiet_failures=10)" in found.detail


@pytest.mark.parametrize(
    ("partitions", "redeliveries", "in_place", "dead"),
    [(4, 2, True, range(6, 60)), (4, None, True, None), (4, 2, False, range(60))],
    ids=["block", "block for ever", "park"],
)
def test_the_bounds_are_those_of_the_engine(
    partitions: int, redeliveries: int | None, in_place: bool, dead: range | None
) -> None:
    """Everything fails, for ten minutes: what has left when the breaker opens."""
    policy = RetryPolicy("1s", 1, "1s", redeliveries, 0)
    world = HeldWorld(HandlerRules("bill", ordering="partition", policy=policy, in_place=in_place))
    for partition in range(partitions):
        world.assign(partition)
        world.read(range(100), partition)
    written = 0
    while world.now_s < 1_600 and not world.told(BreakerOpened):
        while world.startable() and not world.told(BreakerOpened):
            delivery = world.start()
            world.now_s += 0.005
            world.finish(delivery, BOOM)
            world.engine.judge([], world.now)
            while world.writes:
                written += 1
                world.confirm()
        world.tick(0.1)
    assert bool(world.told(BreakerOpened)) == (dead is not None)
    assert dead is None or written in dead
