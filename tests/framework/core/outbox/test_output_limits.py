"""Held outputs have a bound: their handler is given nothing more until some are written."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from ackfloor.core.engine.engine import Engine
from ackfloor.core.outbox.transactional_outbox import LOOK_AGAIN_S
from ackfloor.core.parking.parking import Parking
from ackfloor.core.queues.fair_order import FairOrder
from ackfloor.core.queues.flow_limits import FlowLimits
from ackfloor.core.queues.handler_queue import HandlerQueue
from ackfloor.core.queues.lanes import Lanes
from ackfloor.core.records.outcomes import Failed
from ackfloor.core.records.record import Failure
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.core.state.rule_changes import Reloaded
from tests.framework.core.outbox.test_held_outputs import OUT, abort, content, handle, publish
from tests.framework.core.worlds import TIER, HeldWorld, batch_deliveries, offsets_of

BOOM = Failed(Failure("Boom", "x"))
RULES = HandlerRules("bill", concurrency=2, exactly_once=True)
#: So that two records' outputs are too much.
LIMITS = FlowLimits(max_open_bytes=4_000)
#: Bytes of a value with which an output of one record takes 500 in all.
SIZE = 428


def world_of(count: int, partitions: int = 1, rules: HandlerRules = RULES) -> HeldWorld:
    """A world with so many records of each partition, and room for two outputs."""
    world = HeldWorld(rules, limits=LIMITS, transactional=True)
    for partition in range(partitions):
        world.assign(partition)
    for partition in range(partitions):
        for offset in range(count):
            world.read([offset], partition, key=b"%d" % offset)
    return world


def handler_of(world: HeldWorld) -> HandlerState:
    """Its one handler."""
    return world.engine.state.handlers["bill"]


def fill(world: HeldWorld) -> None:
    """Two records are handled, whose outputs are as much as may be held."""
    for _ in range(2):
        assert not handler_of(world).outputs_full
        handle(world, size=SIZE)
    assert handler_of(world).outputs_full


def places(world: HeldWorld) -> list[tuple[int, int]]:
    """Partition and offset of what its executor has and has not started."""
    return [(d.partition, d.offset) for d in world.ready]


def test_a_handler_is_given_nothing_more_while_its_outputs_are_too_much() -> None:
    """What it was given comes back; it goes on in its order when some are written."""
    world = world_of(6)
    fill(world)
    assert not world.startable()
    assert offsets_of(handler_of(world).queue.items) == [2, 3, 4, 5]
    world.end_transaction()
    assert world.startable()
    assert offsets_of(world.ready) == [2, 3]
    while world.startable():
        handle(world, size=SIZE)
        if not world.startable():
            world.end_transaction()
    while world.transactions:
        world.end_transaction()
    assert world.floor() == 6
    assert handler_of(world).outputs_held == 0
    assert world.engine.flow.open_bytes == 0


def test_without_their_topic_what_was_read_is_not_handled() -> None:
    """However often it is tried: they would take all memory."""
    world = world_of(100)
    fill(world)
    for _ in range(50):
        while world.startable():
            handle(world, size=SIZE)
        if world.transactions:
            abort(world, OUT)
        world.tick(10.0)
        while world.commits:
            world.answer_commit()
    assert handler_of(world).outputs_held == 2 * 500


def test_what_runs_meanwhile_may_hold_more() -> None:
    """Nothing is given for it, and nothing is taken back twice."""
    world = world_of(6)
    late = world.start()
    fill(world)
    assert not world.startable()
    publish(late, size=SIZE)
    world.finish(late)
    assert handler_of(world).outputs_held == 3 * 500
    assert not world.startable()


def test_outputs_of_a_partition_that_left_are_held_no_longer() -> None:
    """The others go on; what is still under way changes nothing when it ends."""
    world = world_of(3, 2)
    fill(world)
    assert places(world) == [(1, 0)], "the oldest of the other partition"
    running = world.start()
    assert not world.startable()
    world.revoke(0)
    assert handler_of(world).outputs_held == 0
    assert world.startable()
    assert places(world) == [(1, 1), (1, 2)]
    world.end_transaction()
    assert handler_of(world).outputs_held == 0
    publish(running, size=SIZE)
    world.finish(running)
    assert handler_of(world).outputs_held == 500
    world.end_transaction()
    assert handler_of(world).outputs_held == 0


def test_outputs_that_are_too_large_are_held_no_longer() -> None:
    """Their records are dead-lettered, and the handler goes on."""
    world = world_of(4)
    fill(world)
    assert not world.startable()
    abort(world, OUT, too_large=True)
    assert handler_of(world).outputs_held == 500
    assert world.startable()


def test_what_outputs_wait_for_starts_all_the_same() -> None:
    """Where no commit has them as settled they wait for the floor: for a record that failed."""
    policy = RetryPolicy("1s", 1, "1s", 3, 0)
    rules = replace(RULES, ordering="key", in_place=True, policy=policy)
    world = world_of(3, 2, rules)
    world.engine.assignments["orders", 0].commit.limit_metadata(0)
    failing = [world.start(), world.start(), world.start(), world.start(), world.start()]
    floor, second, third, other_floor, other = failing
    for delivery in (other, floor):
        # The other one is due first, and has all the room that redeliveries may take.
        world.finish(delivery, BOOM)
        world.leave(delivery)
        world.now_s += 0.1
    for delivery in (second, third):
        publish(delivery, size=SIZE)
        world.finish(delivery)
        world.leave(delivery)
    assert handler_of(world).outputs_full
    assert world.transactions == []
    world.tick(2.0)
    assert places(world) == [(0, 0)]
    handle(world, size=SIZE)
    assert not world.startable()
    for _ in range(2):
        world.tick(LOOK_AGAIN_S)
        while world.commits:
            world.answer_commit()
    (transaction,) = world.transactions
    assert sorted(content(transaction)) == [(OUT, 0), (OUT, 1), (OUT, 2)]
    world.end_transaction()
    assert world.floor() == 3
    assert handler_of(world).outputs_held == 0
    assert world.startable()
    assert places(world)[0] == (1, 1)
    assert not other_floor.closed


def test_what_a_rate_does_not_let_start_waits_for_it() -> None:
    """Also the oldest record of a partition."""
    world = world_of(2, rules=replace(RULES, rate_per_s=1.0))
    world.give_back("bill")
    handler = handler_of(world)
    handler.outputs_held = handler.outputs_limit
    assert offsets_of(world.engine._scheduler._next(handler, 0, world.now, 0)) == []
    assert offsets_of(handler.queue.items) == [0, 1]
    assert offsets_of(world.engine._scheduler._next(handler, 0, world.now, 1)) == [0]
    assert offsets_of(handler.queue.items) == [1]


def test_what_waits_for_others_is_not_given_meanwhile() -> None:
    """R6: of noisy keys, too, the oldest record alone."""
    world = HeldWorld(replace(RULES, fair_key=lambda d: d.key), limits=LIMITS, transactional=True)
    world.assign()
    handler = handler_of(world)
    fair = handler.queue.fair
    assert fair is not None
    fair._wait(b"a", hanging=False)
    world.read(range(5), key=b"a")
    assert len(fair) == 5
    handler.outputs_held = handler.outputs_limit
    assert len(world.engine.next_last("bill", 0, world.now)) == 0
    world.feed()
    assert offsets_of(world.ready) == [0]
    handler.outputs_held = 0
    assert offsets_of(world.engine.next_last("bill", 0, world.now))[:1] == [1]


@pytest.mark.parametrize("full", [False, True])
def test_what_timed_out_does_not_wait_for_the_slots_of_its_like(
    monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    """These may wait themselves, for what is written when this one is handled."""
    monkeypatch.setattr(FairOrder, "may_redeliver", lambda *_: False)
    world = HeldWorld(replace(RULES, fair_key=lambda d: d.key), limits=LIMITS, transactional=True)
    world.assign(topic=TIER)
    handler = handler_of(world)
    handler.outputs_held = full * handler.outputs_limit
    world.redeliver([0], headers=[("ackfloor.reason", b"timeout")])
    world.tick()
    assert places(world) == [(0, 0)] * full


def test_a_queue_gives_what_is_asked_for_and_keeps_the_others_in_order() -> None:
    """Q1: what is not here is passed over."""
    queue = HandlerQueue(Lanes(singly=True), ordered=False, batches=False)
    deliveries = batch_deliveries(4)
    queue.put(deliveries[:3])
    wanted = {id(deliveries[n]) for n in (1, 2, 3)}
    assert offsets_of(queue.take_these(wanted, 1)) == [1]
    assert offsets_of(queue.items) == [0, 2]
    assert offsets_of(queue.take_these(wanted, None)) == [2]
    assert offsets_of(queue.items) == [0]


@pytest.mark.parametrize(("most", "each"), [(4_000, 500), (4, 1)])
def test_handlers_share_a_quarter_of_the_bytes(most: int, each: int) -> None:
    """Those that publish exactly once, evenly; at least one byte, or none would ever start."""
    rules = [replace(RULES, name=name) for name in ("a", "b")]
    engine = Engine(
        [*rules, HandlerRules("c")],
        {},
        Parking("g", lambda _: 0, {}, release="r1"),
        limits=FlowLimits(max_open_bytes=most),
        inbox=deque(),
        clock=lambda: 0.0,
        transactional=True,
    )
    handlers = engine.state.handlers
    assert [handlers[name].outputs_limit for name in ("a", "b")] == [each, each]
    assert not handlers["c"].outputs_full


def test_a_reload_changes_how_much_may_be_held() -> None:
    """More room lets a handler go on."""
    world = world_of(6)
    fill(world)
    assert not world.startable()
    world.engine.reload(Reloaded((RULES,), FlowLimits(), 1.0, 1_000), world.now)
    assert world.startable()
