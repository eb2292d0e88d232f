"""SlotDemand: enough slots, and not many more."""

from __future__ import annotations

import random

import pytest

from ackfloor.core.queues.slot_demand import RECENT_LOOKS, SlotDemand


def looks_of(mean: float, chance: random.Random, count: int) -> list[int]:
    """How many run at each look, of deliveries that begin by chance and take four looks."""
    begun = [sum(chance.random() < mean / 400 for _ in range(100)) for _ in range(count + 3)]
    return [sum(begun[at : at + 4]) for at in range(count)]


def test_without_a_look_nothing_is_needed() -> None:
    """Nor where no look has seen a slot taken."""
    demand = SlotDemand()
    assert demand.slots() == 0
    for _ in range(100):
        demand.seen(0)
    assert demand.slots() == 0


@pytest.mark.parametrize("mean", [0.5, 2, 8, 16, 40])
def test_what_comes_by_chance_rarely_needs_more(mean: float) -> None:
    """One look in 200 at most; and what is kept is the mean, four deviations and a slot at most."""
    demand, kept, missed = SlotDemand(), list[int](), 0
    seen = looks_of(mean, random.Random(int(10 * mean)), 20 * RECENT_LOOKS)
    for number, slots in enumerate(seen):
        if number >= RECENT_LOOKS:
            kept.append(demand.slots())
            missed += slots > kept[-1]
        demand.seen(slots)
    assert missed <= len(kept) / 200
    assert mean < sum(kept) / len(kept) <= mean + 4 * mean**0.5 + 1


def test_what_comes_evenly_needs_one_more() -> None:
    """Once enough looks have seen it."""
    demand = SlotDemand()
    for _ in range(8 * RECENT_LOOKS):
        demand.seen(6)
    assert demand.slots() == 7


def test_a_sudden_rise_is_covered_at_once() -> None:
    """By the most that was seen, long before mean and deviation follow."""
    demand = SlotDemand()
    for _ in range(4 * RECENT_LOOKS):
        demand.seen(1)
    demand.seen(30)
    assert demand.slots() >= 31


def test_a_single_peak_is_not_taken_for_the_rule() -> None:
    """The first look may fall on it."""
    demand = SlotDemand()
    demand.seen(8)
    assert demand.slots() == 9
    demand.seen(0)
    assert demand.slots() == 9


def test_what_is_used_no_more_is_given_back() -> None:
    """Down to nothing."""
    demand = SlotDemand()
    for _ in range(4 * RECENT_LOOKS):
        demand.seen(20)
    found = []
    while demand.slots():
        demand.seen(0)
        found.append(demand.slots())
    assert len(found) < 2 * RECENT_LOOKS
