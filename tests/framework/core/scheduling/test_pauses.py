"""Pauses: a handler that asked for one takes no records until it is over."""

from __future__ import annotations

from math import inf

from ackfloor.core.breaker.rule import Forced
from ackfloor.core.messages.commands import Pause, Resume, TakeBack
from ackfloor.core.messages.events import HandlerHeld
from ackfloor.core.records.record import TopicPartition
from ackfloor.core.scheduling.pauses import SHORTEST_PAUSE_S
from ackfloor.core.state.assignment import HandlerRules
from tests.framework.core.worlds import START_S, HeldWorld, offsets_of

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
