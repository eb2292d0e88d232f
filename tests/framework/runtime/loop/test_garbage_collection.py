"""A worker looks for cycles less often, and takes nobody's own choice away."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ackfloor.runtime.loop.garbage_collection import YOUNG, look_less_often


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """This process's collector is as it was."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    yield
    gc.unfreeze()
    if frozen:
        # What was collected is to stay out of sight for the tests behind these (tests.collecting).
        gc.freeze()
    gc.set_threshold(*before)


def test_young_objects_are_looked_at_less_often() -> None:
    """What was there is out of sight, and the older generations' turns stay."""
    gc.set_threshold(700, 11, 12)
    frozen = gc.get_freeze_count()
    look_less_often()
    assert gc.get_threshold() == (YOUNG, 11, 12)
    assert gc.get_freeze_count() > frozen


@pytest.mark.parametrize("young", [0, YOUNG + 1])
def test_who_looks_less_often_already_goes_on_so(young: int) -> None:
    """Switched off, or set higher: as it was."""
    gc.set_threshold(young, 10, 10)
    look_less_often()
    assert gc.get_threshold()[0] == young


def test_cycles_are_still_freed() -> None:
    """What refers to itself goes when there is enough of it."""

    class Circle:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Circle.alive += 1

        def __del__(self) -> None:
            Circle.alive -= 1

    gc.set_threshold(700, 10, 10)
    look_less_often()
    made = 3 * YOUNG
    for _ in range(made):
        Circle()
    assert Circle.alive < made
