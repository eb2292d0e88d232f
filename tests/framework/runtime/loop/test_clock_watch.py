"""ClockWatch: a clock that is set back is noticed, and nothing else is taken for it."""

from __future__ import annotations

import threading

import pytest

from ackfloor.runtime.loop import clock_watch
from ackfloor.runtime.loop.clock_watch import HARMLESS_S, ClockWatch

START_S = 1_700_000_000.0


class Clocks:
    """Both clocks of a machine, and what the watch has told."""

    def __init__(self) -> None:
        self.wall_s = START_S
        self.monotonic_s = 7.0
        self.told: list[float] = []
        self.watch = ClockWatch(self.told.append, lambda: self.wall_s, lambda: self.monotonic_s)

    def pass_on(self, seconds: float, jump_s: float = 0.0) -> None:
        """Time passes, and the wall clock jumps meanwhile; then the watch looks."""
        self.monotonic_s += seconds
        self.wall_s += seconds + jump_s
        self.watch.look()


def test_a_clock_that_is_set_back_is_told_once() -> None:
    """By how much; from then on it is what it is."""
    clocks = Clocks()
    clocks.pass_on(1.0)
    clocks.pass_on(1.0, jump_s=-3_600)
    clocks.pass_on(1.0)
    assert clocks.told == [3_600]
    clocks.pass_on(1.0, jump_s=-60)
    assert clocks.told == [3_600, 60]


@pytest.mark.parametrize("jump_s", [3_600, -HARMLESS_S, 0.0])
def test_anything_else_is_not_told(jump_s: float) -> None:
    """A clock that is set forward, or back by a moment, or not at all for a long time."""
    clocks = Clocks()
    clocks.pass_on(3_600, jump_s=jump_s)
    clocks.pass_on(1.0)
    assert clocks.told == []


def test_a_process_that_stands_still_between_both_clocks_is_not_told() -> None:
    """It was stopped for a minute in the middle of a look, and goes on."""
    clocks = Clocks()

    def wall_and_a_stop() -> float:
        found_s = clocks.wall_s
        clocks.wall_s, clocks.monotonic_s = clocks.wall_s + stops.pop(), clocks.monotonic_s + 60
        return found_s

    stops = [60.0]
    clocks.watch = ClockWatch(
        clocks.told.append,
        lambda: wall_and_a_stop() if stops else clocks.wall_s,
        lambda: clocks.monotonic_s,
    )
    clocks.pass_on(1.0)
    stops.append(60.0)
    clocks.pass_on(1.0)
    assert clocks.told == []
    clocks.pass_on(1.0, jump_s=-60)
    assert clocks.told == [60]


def test_it_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread of its own, which does not keep the process."""
    monkeypatch.setattr(clock_watch, "LOOK_S", 0.001)
    told = threading.Event()
    wall = iter([START_S, START_S - 3_600])
    ClockWatch(lambda _: told.set(), lambda: next(wall, START_S - 3_600), lambda: 7.0).start()
    assert told.wait(60)
    [thread] = [each for each in threading.enumerate() if each.name == "ackfloor:clock"]
    assert thread.daemon
