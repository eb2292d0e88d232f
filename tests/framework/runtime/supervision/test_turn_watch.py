"""TurnWatch: which worker is given up, and which only looks as if it stood still."""

from __future__ import annotations

from ackfloor.runtime.supervision.in_flight_memory import Signs
from ackfloor.runtime.supervision.turn_watch import LONGEST_LOOK_S, SET_BACK_S, STILL_S, TurnWatch

DRAIN_S = 45.0
TURNED = Signs(turns=3, set_back=0)
SET_BACK = Signs(turns=3, set_back=3)


def watched(signs: Signs, seconds: float, every_s: float = 0.5) -> TurnWatch:
    """The watch of a worker that has shown these signs for a while."""
    watch = TurnWatch(0.0)
    watch.look(signs, 0.0)
    now_s = 0.0
    while now_s < seconds:
        now_s += every_s
        watch.look(signs, now_s)
    return watch


def test_a_worker_without_a_turn_is_given_up_in_the_end() -> None:
    """What keeps it, nobody knows: a silent broker, or a handler that holds the interpreter."""
    assert not watched(TURNED, STILL_S - 0.5).stuck("running", DRAIN_S)
    watch = watched(TURNED, STILL_S)
    assert watch.stuck("running", DRAIN_S)
    assert not watch.set_back


def test_one_whose_clock_was_set_back_is_given_up_much_sooner() -> None:
    """It would wait until the clock has caught up."""
    assert not watched(SET_BACK, SET_BACK_S - 0.5).stuck("running", DRAIN_S)
    watch = watched(SET_BACK, SET_BACK_S)
    assert watch.stuck("running", DRAIN_S)
    assert watch.set_back


def test_a_turn_after_the_clock_was_set_back_begins_anew() -> None:
    """It waits by the new time: what is long from then on has another reason."""
    watch = watched(SET_BACK, SET_BACK_S - 0.5)
    watch.look(Signs(turns=4, set_back=3), SET_BACK_S)
    assert not watch.set_back
    assert watch.still_s == 0


def test_a_worker_has_any_time_before_its_first_turn() -> None:
    """It imports an app, and enters a lifespan."""
    watch = TurnWatch(0.0)
    for now_s in range(1_000):
        watch.look(Signs(turns=0, set_back=0), now_s)
    assert not watch.stuck("starting", DRAIN_S)


def test_a_worker_that_drains_has_the_time_of_a_drain() -> None:
    """What it waits for then has bounds of its own, which make no turns."""
    assert not watched(SET_BACK, DRAIN_S - 0.5).stuck("draining", DRAIN_S)
    assert watched(TURNED, DRAIN_S).stuck("draining", DRAIN_S)


def test_time_in_which_the_supervisor_stood_still_does_not_count() -> None:
    """A machine that was suspended for an hour has suspended the worker, too."""
    watch = watched(TURNED, seconds=3_600, every_s=3_600)
    assert watch.still_s == LONGEST_LOOK_S
    assert not watch.stuck("running", DRAIN_S)
