"""QuarantineOrders: what an operator's order does to the heads of quarantined keys.

What each word does is in tests/framework/cli/lanes/test_quarantined.py.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ackfloor.core.messages.lane_order import Action, LaneAnswer, LaneOrder
from ackfloor.core.queues.due_queue import DueQueue
from ackfloor.core.records.record import TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from tests.framework.core.quarantine_worlds import (
    BOOM,
    SHORT,
    SOURCE,
    TIERS,
    QuarantineWorld,
    rules,
)

#: All actions that move a head.
MOVES = (Action.RETRY, Action.DELAY, Action.DEAD_LETTER, Action.DISCARD)


@pytest.fixture
def world() -> QuarantineWorld:
    """A worker with three quarantined keys whose heads wait for their time."""
    world = QuarantineWorld(rules())
    world.gain()
    world.produce("aabbcc")
    for _ in "abc":
        world.handle(BOOM)
    world.confirm_all()
    world.poll()
    return world


def does(world: QuarantineWorld, action: Action) -> LaneAnswer:
    """An order for all keys."""
    order = LaneOrder(action, "bill", delay_s=7.0, reason="not wanted")
    answer = world.engine.lane_orders.carry_out(order, world.now)
    world.take()
    return answer


@pytest.mark.parametrize("action", MOVES)
def test_an_order_looks_once_at_what_waits_in_a_partition(
    world: QuarantineWorld, action: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each head would take seconds of the owner thread where thousands wait."""
    looks: list[Collection[int]] = []
    take = DueQueue.take

    def looked(self: DueQueue, offsets: Collection[int]) -> list[tuple[float, TrackedDelivery]]:
        looks.append(offsets)
        return take(self, offsets)

    monkeypatch.setattr(DueQueue, "take", looked)
    assert does(world, action).done == 3
    assert looks == [{0, 1, 2}]
    world.come_to_rest()
    moved = [offset for _, offset in world.handled]
    assert sorted(moved) == ([0, 1, 2, 3, 4, 5] if action in MOVES[:2] else [1, 3, 5])
    assert not world.quarantined


@pytest.mark.parametrize("action", MOVES)
@pytest.mark.parametrize("leaving", [(SOURCE, *TIERS), (SHORT,)])
def test_what_leaves_with_its_partition_is_not_moved(
    world: QuarantineWorld, action: Action, leaving: tuple[str, ...]
) -> None:
    """It is for the next owner; an order may come while the partition is on its way there."""
    world.engine.stop([TopicPartition(topic, 0) for topic in leaving])
    answer = does(world, action)
    assert (answer.done, answer.left) == (0, {})
    assert not world.writes
    assert world.open(SHORT) == [0, 1, 2]
