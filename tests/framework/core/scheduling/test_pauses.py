"""Pauses: a handler that asked for one, or that an operator paused, takes no records meanwhile."""

from __future__ import annotations

from math import inf

import pytest

from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.commands import Command, Pause, Resume, TakeBack
from ackfloor.core.messages.events import HandlerHeld
from ackfloor.core.records.outcomes import ACKED, Failed
from ackfloor.core.records.record import Failure, TopicPartition
from ackfloor.core.scheduling.pauses import SHORTEST_PAUSE_S
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import START_S, TIER, HeldWorld, offsets_of

ORDERS = TopicPartition("orders", 0)


def world_of() -> HeldWorld:
    """A world with one record that waits for its handler."""
    world = HeldWorld(HandlerRules("bill"))
    world.assign()
    world.read([0])
    return world


def test_a_pause_stops_fetching_where_it_is_worth_it() -> None:
    """One of a few milliseconds does not: it would throw the prefetch away."""
    world = world_of()
    world.engine.hold("bill", 0.2, "away", world.now)
    assert not any(isinstance(command, Pause) for command in world.take())
    world.engine.hold("bill", 30.0, "away", world.now)
    assert Pause((ORDERS,)) in world.take()
    assert not world.startable()
    assert any(isinstance(command, Resume) for command in world.tick(30))
    assert not world.held
    assert world.startable()
    assert world.engine.next_due_s(world.now) == inf


def test_a_pause_of_no_time_ends_later() -> None:
    """Or it would come again without end."""
    world = world_of()
    world.engine.hold("bill", 0.0, "away", world.now)
    world.take()
    assert world.told(HandlerHeld) == [HandlerHeld("bill", SHORTEST_PAUSE_S, "away")]
    assert world.engine.next_due_s(world.now) == START_S + SHORTEST_PAUSE_S


def test_the_longer_of_two_counts() -> None:
    """A shorter one that is asked for later ends nothing."""
    world = world_of()
    world.engine.hold("bill", 30.0, "away", world.now)
    world.engine.hold("bill", 0.5, "a moment", world.now)
    world.take()
    world.tick(29)
    assert (world.held, world.startable()) == (True, False)
    world.tick(1)
    assert (world.held, world.startable()) == (False, True)


def test_a_pause_of_what_was_no_trial_takes_none_away() -> None:
    """It had started before the breaker opened."""
    world = world_of()
    started = world.start()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    started.reopen()
    world.ready.append(started)
    world.engine.hold("bill", 1.0, "away", world.now)
    world.take()
    world.read([1])
    assert not world.startable()
    world.tick(1.0)
    assert offsets_of(world.ready) == [0]


def test_a_pause_that_ends_leaves_an_open_breaker_alone() -> None:
    """Trials go on then, and everything only when the breaker is closed."""
    world = world_of()
    world.engine.force("bill", Forced.OPEN, inf, "", world.now)
    world.take()
    world.engine.hold("bill", 30.0, "away", world.now)
    assert TakeBack("bill") in world.take()
    assert not world.startable()
    world.tick(30)
    assert world.held
    assert world.queued() == 1
    world.engine.force("bill", Forced.CLOSED, inf, "", world.now)
    world.take()
    assert not world.held


# An operator's.


def paused(world: HeldWorld, for_s: float = inf, reason: str = "a migration") -> list[Command]:
    """An operator pauses the handler; returns what was commanded."""
    world.engine.pause("bill", world.now_s + for_s, reason, world.now)
    return world.take()


def resumed(world: HeldWorld) -> list[Command]:
    """And resumes it."""
    world.engine.resume("bill", world.now)
    return world.take()


def reason_of(world: HeldWorld) -> tuple[float, str]:
    """Until when an operator paused it, and why."""
    handler = world.engine.state.handlers["bill"]
    return handler.paused_until_s, handler.paused_reason


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
def test_nothing_starts_while_an_operator_pauses_a_handler(ordering: str) -> None:
    """What runs ends, what was given comes back, and fetching stops; at once it all goes on."""
    world = HeldWorld(HandlerRules("bill", ordering, concurrency=2))
    world.assign()
    world.read(range(5))
    running = world.start()
    commands = paused(world)
    assert TakeBack("bill") in commands
    assert Pause((ORDERS,)) in commands
    assert reason_of(world) == (inf, "a migration")
    world.finish(running)
    world.leave(running)
    for _ in range(3):
        world.tick(3600)
        assert not world.startable()
    assert world.engine.next_due_s(world.now) == inf
    assert any(isinstance(command, Resume) for command in resumed(world))
    offsets = []
    while world.startable():
        delivery = world.start()
        offsets.append(delivery.offset)
        world.finish(delivery)
        world.leave(delivery)
    assert offsets == [1, 2, 3, 4]
    assert reason_of(world) == (0.0, "")
    assert not world.engine.flow.open_count


def test_an_operators_pause_ends_by_itself() -> None:
    """By monotonic time, of which the loop wakes up."""
    world = world_of()
    paused(world, 1800)
    assert world.engine.next_due_s(world.now) == START_S + 1800
    world.tick(1799)
    assert not world.startable()
    world.tick(1)
    assert world.startable()
    assert reason_of(world) == (0.0, "")


def test_the_later_end_of_both_pauses_counts() -> None:
    """Neither takes the other back, whichever came first."""
    world = world_of()
    paused(world, 60)
    world.engine.hold("bill", 30.0, "away", world.now)
    world.take()
    world.tick(30)
    assert (world.startable(), reason_of(world)[1]) == (False, "a migration")
    world.engine.hold("bill", 60.0, "away", world.now)
    world.take()
    world.tick(30)
    assert (world.startable(), reason_of(world)) == (False, (0.0, ""))
    paused(world)
    resumed(world)
    assert not world.startable(), "it asked for a pause itself"
    world.tick(30)
    assert world.startable()


def test_an_operator_may_change_a_pause() -> None:
    """The last order counts, also where it ends earlier."""
    world = world_of()
    paused(world)
    paused(world, 10, "shorter")
    assert reason_of(world) == (world.now_s + 10, "shorter")
    world.tick(10)
    assert world.startable()


def test_redeliveries_wait_for_the_end_of_an_operators_pause() -> None:
    """Those of a retry topic and those in place, the attempt that they were; then they come."""
    world = world_of()
    world.assign(topic=TIER)
    paused(world)
    world.redeliver([0, 1])
    world.tick(3600)
    assert not world.startable()
    assert world.engine.state.handlers["bill"].open_retries == 0
    resumed(world)
    world.tick()
    assert sorted(d.attempt for d in (world.start(), world.start(), world.start())) == [1, 2, 2]


def test_what_fails_in_place_during_an_operators_pause_waits_for_its_end() -> None:
    """Its lane is blocked and nothing is tried, however long ago it was due."""
    world = HeldWorld(HandlerRules("bill", "key", in_place=True))
    world.assign()
    world.read([0, 1], key=b"k")
    running = world.start()
    paused(world)
    world.finish(running, Failed(Failure("Boom", "x")))
    world.leave(running)
    world.tick(3600)
    assert not world.startable()
    resumed(world)
    world.tick()
    assert world.start().offset == 0


def test_no_batch_is_given_while_an_operator_pauses_its_handler() -> None:
    """Neither a full one nor one whose wait is over."""
    world = HeldWorld(HandlerRules("bill", batch=3, batch_wait_s=0.5))
    world.assign()
    world.read(range(4))
    paused(world)
    world.tick(60)
    assert not world.startable()
    resumed(world)
    world.tick()
    assert [offsets_of([batch]) for batch in world.ready] == [[0, 1, 2], [3]]


def test_no_trial_starts_while_an_operator_pauses_the_handler() -> None:
    """Its breaker neither closes for want of trials nor plans one; then they go on at once."""
    rules = HandlerRules("bill", breaker=CircuitBreaker(5, gives_in_after="10m"))
    world = HeldWorld(rules)
    world.assign()
    world.read(range(3))
    world.engine.resume_open("bill", 5, "Boom: x", world.now)
    world.take()
    world.tick()
    assert world.queued() == 1
    paused(world)
    for _ in range(3):
        world.tick(3600)
        assert not world.startable()
    assert world.engine.next_due_s(world.now) == inf
    resumed(world)
    world.tick()
    assert (world.held, world.queued()) == (True, 1)
    world.finish(world.start(), ACKED)
    world.tick()
    assert world.queued() == 2
