"""Scheduler: who is given something now (R1 to R3)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from ackfloor.core.breaker.rule import TOGETHER, Forced
from ackfloor.core.records.batch import Batch
from ackfloor.core.records.outcomes import ACKED
from ackfloor.core.state.assignment import HandlerRules, HandlerState
from ackfloor.runtime.executors.batch_calls import begin
from tests.framework.core.worlds import HeldWorld, World, deliveries_in, offsets_of

RULES = HandlerRules("bill", concurrency=2)
BY_KEY = replace(RULES, ordering="key")
BATCHES = replace(RULES, batch=2, batch_wait_s=0.0)


def world_of(rules: HandlerRules = RULES, count: int = 5) -> HeldWorld:
    """A world whose handler has so many records to do, and room for two items."""
    world = HeldWorld(rules)
    world.assign()
    world.read(range(count))
    world.tick()
    return world


def handler_of(world: World) -> HandlerState:
    """Its one handler."""
    return world.engine.state.handlers["bill"]


def _handle(world: HeldWorld) -> None:
    """A slot handles the first item."""
    if not isinstance(world.ready[0], Batch):
        world.finish(world.start())
        return
    batch = world.ready.popleft()
    begin(batch, world.now_s)
    batch.outcome = ACKED
    world.engine.unit_ended("bill", batch, world.now)
    world.take()


def suspected(rules: HandlerRules) -> HeldWorld:
    """A world in which record 1 is to run alone, and has been given to the executor."""
    world = HeldWorld(rules)
    world.engine.suspects.learn([("orders", 0, 1, 2, "was killed")])
    world.assign()
    world.read(range(4))
    world.tick()
    for _ in range(2):
        world.engine.suspects.tick(world.now, quiet=True)
        world.take()
    assert offsets_of(world.ready) == [1]
    return world


def test_an_executor_is_given_what_its_slots_start_in_a_turn() -> None:
    """The rest stays here, in its order."""
    world = world_of()
    assert offsets_of(world.ready) == [0, 1]
    assert offsets_of(handler_of(world).queue.items) == [2, 3, 4]
    started = []
    while world.startable():
        delivery = world.start()
        world.finish(delivery)
        started.append(delivery.offset)
    assert started == [0, 1, 2, 3, 4]


def test_nothing_is_given_in_a_pause() -> None:
    """R1: what was given comes back, and is given again in its order."""
    world = world_of()
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.startable()
    assert offsets_of(handler_of(world).queue.items) == [0, 1, 2, 3, 4]
    world.tick(5.0)
    assert offsets_of(world.ready) == [0, 1]


def test_a_pause_counts_more_than_an_open_breaker() -> None:
    """R1: a trial would be started in the middle of it."""
    world = world_of()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.startable()
    world.tick(5.0)
    assert offsets_of(world.ready) == [0], "one trial"


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_nothing_but_trials_is_given_while_the_breaker_is_open(rules: HandlerRules) -> None:
    """R1: one record at a time, whatever it would be given with."""
    world = world_of(rules)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    tried: list[int] = []
    while world.startable():
        assert all(len(deliveries_in(item)) == 1 for item in world.ready)
        assert len(world.ready) <= TOGETHER
        tried += offsets_of([world.ready[0]])
        _handle(world)
        world.tick(1.0)
    assert tried == [0, 1, 2, 3, 4]


def test_what_has_ended_or_must_not_start_is_no_trial() -> None:
    """Its partition was dropped while it waited; the trial is one of what there is."""
    world = world_of()
    world.assign(1)
    world.read([7, 8], 1)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.revoke(0)
    world.tick(1.0)
    assert offsets_of(world.ready) == [7, 8]


def test_a_lane_whose_records_are_gone_is_no_trial() -> None:
    """The same of a lane; and it is forgotten."""
    world = HeldWorld(BY_KEY)
    for partition in (0, 1):
        world.assign(partition)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.read([0, 1], 0, key=b"a")
    world.read([7, 8], 1, key=b"a")
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.revoke(0)
    world.tick(5.0)
    assert offsets_of(world.ready) == [7]
    assert len(handler_of(world).lanes) == 1


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_beside_what_runs_alone_nothing_is_given(rules: HandlerRules) -> None:
    """R2: neither what waits nor what is read meanwhile; all of it follows in order."""
    world = suspected(rules)
    world.read([4])
    world.tick(1.0)
    assert offsets_of(world.ready) == [1]
    _handle(world)
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    given = offsets_of(world.ready)
    assert given == ([0, 2, 3, 4] if rules is BATCHES else [0, 2])


@pytest.mark.parametrize("rules", [RULES, BY_KEY, BATCHES], ids=["loose", "key", "batch"])
def test_what_is_to_run_alone_does_so_after_it_was_given_back(rules: HandlerRules) -> None:
    """R2: an operator opens its breaker before it has started; everything waits for it."""
    world = suspected(rules)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    assert offsets_of(world.ready) == [1]
    assert handler_of(world).queue.calls == (rules is BATCHES)


def test_what_is_to_run_alone_waits_for_the_end_of_a_pause() -> None:
    """R1: its handler asked for one in the moment in which it was to start."""
    world = HeldWorld(RULES)
    world.engine.suspects.learn([("orders", 0, 1, 2, "was killed")])
    world.assign()
    world.read([0, 1])
    world.engine.suspects.tick(world.now, quiet=True)
    world.take()
    world.engine.suspects.tick(world.now, quiet=True)
    world.engine.hold("bill", 5.0, "away", world.now)
    world.take()
    assert not world.ready
    world.tick(5.0)
    assert offsets_of(world.ready)[0] == 1


@pytest.mark.parametrize("rules", [RULES, BY_KEY], ids=["loose", "key"])
def test_what_was_given_back_is_given_first(rules: HandlerRules) -> None:
    """R3: before what waits."""
    world = world_of(rules)
    world.give_back("bill")
    assert not world.ready
    world.take()
    assert offsets_of(world.ready) == [0, 1]


def test_a_batch_that_was_given_back_is_formed_anew() -> None:
    """R3: its records are the first, and its lane is whole."""
    world = HeldWorld(replace(BATCHES, ordering="key"))
    world.assign()
    world.read(range(5), key=b"k")
    assert offsets_of(world.ready) == [0, 1]
    world.give_back("bill")
    queue = handler_of(world).queue
    assert (offsets_of(queue.items), queue.calls) == ([0, 1, 2, 3, 4], 0)
    world.take()
    assert offsets_of(world.ready) == [0, 1]


def test_a_trial_of_a_lane_that_was_given_back_has_its_lane_behind_it() -> None:
    """R3: nobody visits it any more, so it is whole again."""
    world = HeldWorld(BY_KEY)
    world.assign()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.read([0, 1, 2], key=b"k")
    assert offsets_of(world.ready) == [0]
    world.give_back("bill")
    assert offsets_of(handler_of(world).queue.items) == [0, 1, 2]
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.take()
    assert offsets_of(world.ready) == [0, 1, 2]


def test_what_is_behind_a_trial_in_its_lane_waits_for_its_end() -> None:
    """And is tried then, one by one."""
    world = HeldWorld(BY_KEY)
    world.assign()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.read([0, 1], key=b"k")
    tried = world.start()
    world.read([2], key=b"k")
    world.tick(2.0)
    assert not world.ready
    world.finish(tried)
    world.leave(tried)
    world.tick(1.0)
    assert offsets_of(world.ready) == [1]


def test_trials_say_nothing_of_what_a_turn_starts() -> None:
    """However many there were: what comes after them is given in a window, and not at once."""
    world = world_of(count=300)
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    for _ in range(100):
        _handle(world)
        world.tick(1.0)
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.tick(1.0)
    assert handler_of(world).queue.window == RULES.concurrency
    assert len(world.ready) <= RULES.concurrency + TOGETHER
