"""Gathering: what waits for company waits no longer than it should, and comes out in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.queues.batch_buffer import BatchBuffer
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.runtime.executors.batch_calls import begin
from tests.framework.core.worlds import World, offsets_of

WAIT_S = 0.5
SIZE = 3
ORDERINGS = ("unordered", "key", "partition")


def batched(ordering: str = "unordered") -> World:
    """A world whose handler takes three records at once."""
    rules = HandlerRules("bill", ordering, batch=SIZE, batch_wait_s=WAIT_S)
    world = World(rules)
    world.assign(0)
    world.assign(1)
    return world


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_is_full_goes_at_once(ordering: str) -> None:
    """The rest waits for more."""
    world = batched(ordering)
    world.read([0, 1], key=b"a")
    assert offsets_of(world.ready) == []
    world.read([2, 3], key=b"a")
    taken = {"unordered": [0, 1, 2], "key": [0, 1, 2], "partition": [0, 1, 2]}[ordering]
    assert offsets_of(world.ready)[:3] == taken


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_the_first_record_decides_how_long_all_wait(ordering: str) -> None:
    """Later ones go with it."""
    world = batched(ordering)
    world.read([0], key=b"a")
    world.tick(0.4)
    world.read([1], key=b"a")
    assert world.engine.next_due_s(world.now) == pytest.approx(world.now_s + 0.1)
    world.tick(0.09)
    assert offsets_of(world.ready) == []
    world.tick(0.02)
    assert offsets_of(world.ready) == [0, 1]
    assert world.engine.next_due_s(world.now) == float("inf")


def test_keys_wait_together() -> None:
    """One batch may take several of them."""
    world = batched("key")
    world.read([0], key=b"a")
    world.read([1], key=b"b")
    assert offsets_of(world.ready) == []
    world.read([2], key=b"c")
    assert offsets_of(world.ready) == [0, 1, 2]


def test_partitions_wait_alone() -> None:
    """A batch takes one of them."""
    world = batched("partition")
    world.read([0, 1], partition=0)
    world.tick(0.3)
    world.read([0, 1], partition=1)
    assert offsets_of(world.ready) == []
    world.tick(0.3)
    assert [d.partition for batch in world.ready for d in batch.items] == [0, 0]
    world.tick(0.3)
    assert len(offsets_of(world.ready)) == 4


def test_a_redelivery_does_not_wait() -> None:
    """It is handled alone, so there is nothing to wait for."""
    world = batched()
    world.assign(topic="orders--g--retry-1s")
    world.redeliver([0])
    assert offsets_of(world.ready) == [0]
    assert world.engine.state.handlers["bill"].batch_buffer is not None


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_waits_leaves_with_its_partition(ordering: str) -> None:
    """Nothing of it is dispatched, now or later, and the other partition's still is."""
    world = batched(ordering)
    world.read([0], partition=0, key=b"a")
    world.read([5], partition=1, key=b"a")
    world.revoke(0)
    batch_buffer = world.engine.state.handlers["bill"].batch_buffer
    assert batch_buffer is not None
    assert [d.offset for d in batch_buffer.waiting()] == [5]
    world.tick(WAIT_S)
    assert offsets_of(world.ready) == [5]


def test_the_wait_may_change_while_records_wait() -> None:
    """It is computed when it is looked at."""
    world = batched()
    world.read([0])
    batch_buffer = world.engine.state.handlers["bill"].batch_buffer
    assert batch_buffer is not None
    assert batch_buffer.due(world.now_s, 0.1) == []
    assert offsets_of(batch_buffer.due(world.now_s, 0.0)) == [0]
    assert len(batch_buffer) == 0


def test_what_came_while_a_lane_was_visited_waits_for_company_of_its_own() -> None:
    """Calls end together: a full batch goes at once, what is less waits, as ever."""
    world = batched("key")
    batches: list[Batch] = []
    for first, key in ((0, b"a"), (3, b"b")):
        world.read([first, first + 1, first + 2], key=key)
        batches.append(world.ready.popleft())
    world.read([6, 7, 8], key=b"a")
    world.read([9], key=b"b")
    assert not world.ready
    for batch in batches:
        begin(batch, world.now_s)
        batch.outcome = ACKED
        world.engine.unit_ended("bill", batch, world.now)
    world.take()
    assert offsets_of(world.ready) == [6, 7, 8]
    world.ready.clear()
    world.tick(WAIT_S + 0.01)
    assert offsets_of(world.ready) == [9]


@given(
    ordering=st.sampled_from(ORDERINGS),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.3, 0.7]), st.booleans()),
        max_size=40,
    ),
)
def test_invariants_hold(ordering: str, steps: list[tuple[int, float, bool]]) -> None:
    """B1, B2 and B3 for any arrivals: nobody visits lanes, so each record comes out of here."""
    world = batched(ordering)
    batch_buffer = world.engine.state.handlers["bill"].batch_buffer
    assert isinstance(batch_buffer, BatchBuffer)
    seen: list[int] = []
    for offset, (key, wait_s, visited) in enumerate(steps):
        world.tick(wait_s)
        world.read([offset], key=b"%d" % key)
        waiting = list(batch_buffer.waiting())
        assert all(world.now_s - d.received_s < WAIT_S for d in waiting)
        groups = [len(waiting)] if ordering != "partition" else _sizes(waiting)
        assert all(size < SIZE for size in groups)
        if visited:
            seen.extend(_visit_all(world))
    world.tick(WAIT_S)
    while world.ready:
        seen.extend(_visit_all(world))
        # What came while a lane was visited has waited for that as well.
        world.tick()
    assert sorted(seen) == list(range(len(steps)))
    if ordering != "key":
        assert seen == sorted(seen)
    for lane in range(4):
        of_lane = [offset for offset in seen if steps[offset][0] == lane]
        assert of_lane == sorted(of_lane)
    assert all(1 <= len(batch.items) <= SIZE for items in world.given for batch in items)


def _sizes(waiting: list[TrackedDelivery]) -> list[int]:
    return [sum(d.partition == partition for d in waiting) for partition in (0, 1)]


def _visit_all(world: World) -> list[int]:
    """Whoever takes a batch handles all of it, and leaves its lanes."""
    found: list[int] = []
    while world.ready:
        batch = world.ready.popleft()
        found += offsets_of([batch])
        begin(batch, world.now_s)
        batch.outcome = ACKED
        world.engine.unit_ended("bill", batch, world.now)
        world.take()
    return found
