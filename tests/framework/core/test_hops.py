"""Waits of tier partitions, and the hops of `Retry(after=)` through them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackfloor.core.records.retry_policy import Hop, next_hop, tier_wait_s

delays = st.integers(1, 10**8).map(lambda ms: ms / 1000)
jitters = st.floats(0, 1)


@given(delays, jitters, st.integers(0, 10_000))
def test_a_tier_s_wait_is_never_shorter_than_its_delay(
    delay_s: float, jitter: float, partition: int
) -> None:
    """Jitter only lengthens, by its share at most, in whole milliseconds."""
    wait_s = tier_wait_s(delay_s, jitter, partition)

    assert delay_s <= wait_s <= delay_s * (1 + jitter) + 0.001
    assert wait_s == round(wait_s * 1000) / 1000


@given(delays, jitters, st.integers(0, 1_000), st.lists(st.integers(0, 10**6)))
def test_records_of_a_tier_partition_fall_due_in_the_order_they_were_parked(
    delay_s: float, jitter: float, partition: int, parked_ms: list[int]
) -> None:
    """The wait belongs to (tier, partition), so waiting for the head delays nobody."""
    due = [ms / 1000 + tier_wait_s(delay_s, jitter, partition) for ms in sorted(parked_ms)]

    assert due == sorted(due)


def test_neighbouring_partitions_spread_over_the_jitter() -> None:
    """Of eight partitions no two share an eighth of the range twice over, and none is bunched."""
    waits = sorted(tier_wait_s(100, 1, partition) for partition in range(8))

    assert waits[0] < 120
    assert waits[-1] > 180
    assert all(5 < later - earlier < 25 for earlier, later in pairwise(waits))


def test_without_jitter_every_partition_waits_the_delay() -> None:
    """A delay that no float holds exactly is not rounded up to the next millisecond."""
    assert {tier_wait_s(0.29, 0, partition) for partition in range(50)} == {0.29}


def test_a_long_wait_goes_through_the_longest_tier_first() -> None:
    """30m of 10m tiers: three hops; 31m: a minute's worth of shorter ones after."""
    tiers = (1.0, 5.0, 25.0, 125.0, 600.0)

    assert next_hop(1_800, tiers, 0, 4, lambda n: n - 1) == Hop(600, 3, 600)
    assert next_hop(600, tiers, 0, 4, lambda _: 0) == Hop(600, 0, 600)
    assert next_hop(599.999, tiers, 0, 4, lambda _: 0) == Hop(125, 0, 125)
    assert next_hop(1, tiers, 0, 4, lambda _: 2) == Hop(1, 2, 1)


def test_what_is_left_below_the_shortest_tier_is_rounded_up_to_it() -> None:
    """Never early: the shortest tier takes the rest, in any of its partitions."""
    asked: list[int] = []

    def pick(count: int) -> int:
        asked.append(count)
        return 3

    assert next_hop(0.2, (1.0, 5.0), 0, 4, pick) == Hop(1, 3, 1)
    assert next_hop(0, (1.0, 5.0), 0, 4, pick) == Hop(1, 3, 1)
    assert asked == [4, 4]


def test_only_partitions_whose_jittered_wait_fits_are_chosen_from() -> None:
    """A tier fits with those of its partitions that do not overshoot."""
    waits = [tier_wait_s(10, 0.5, partition) for partition in range(4)]
    shortest = min(waits)
    asked: list[int] = []

    def pick(count: int) -> int:
        asked.append(count)
        return 0

    hop = next_hop(shortest, (1.0, 10.0), 0.5, 4, pick)

    assert hop == Hop(10, waits.index(shortest), shortest)
    assert asked == [1]
    assert next_hop(shortest - 0.001, (1.0, 10.0), 0.5, 4, pick).tier_s == 1


@pytest.mark.parametrize("left_s", [0, 0.5, 3, 10**6])
def test_one_tier_of_one_partition_is_enough(left_s: float) -> None:
    """The smallest world has one answer."""
    assert next_hop(left_s, (2.0,), 0, 1, lambda _: 0) == Hop(2, 0, 2)


@st.composite
def ladders(draw: st.DrawFn) -> list[float]:
    """Tiers shortest first, each at most 30 times the one before, so that tests stay short."""
    tiers_ms = [draw(st.integers(1, 10_000))]
    for ratio in draw(st.lists(st.floats(1.1, 30), max_size=4)):
        tiers_ms.append(int(tiers_ms[-1] * ratio) + 1)
    return [ms / 1000 for ms in tiers_ms]


@given(
    ladders(),
    st.floats(0, 300),
    jitters,
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_hops_end_never_early_and_late_by_less_than_the_shortest_wait(
    tiers: list[float], longest_waits: float, jitter: float, partitions: int, random: Random
) -> None:
    """Each hop but the last fits into what is left; the last one may round up; they do end."""
    left_ms = round(longest_waits * tiers[-1] * 1000)
    hops = 0
    while left_ms > 0:
        hop = next_hop(left_ms / 1000, tiers, jitter, partitions, random.randrange)
        assert hop.tier_s in tiers
        assert 0 <= hop.partition < partitions
        assert hop.wait_s == tier_wait_s(hop.tier_s, jitter, hop.partition)
        longer = [tier_s for tier_s in tiers if tier_s > hop.tier_s]
        assert all(
            tier_wait_s(tier_s, jitter, partition) * 1000 > left_ms - 0.5
            for tier_s in longer
            for partition in range(partitions)
        )
        overshoot_ms = round(hop.wait_s * 1000) - left_ms
        if overshoot_ms > 0:
            assert hop.tier_s == tiers[0]
            assert overshoot_ms < round(hop.wait_s * 1000)
        left_ms = -overshoot_ms
        hops += 1
    assert hops <= 301 + 62 * len(tiers)
