"""Who waits for whom where a rate is scarce and slots are free (F2, F4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ackfloor.core.queues.fair_order import FEWEST_TOKENS, TOKENS
from tests.framework.core.queues.fair_worlds import BY_KEY, RULES, FairWorld

RATE_PER_S = 40.0
#: The source's partition has nearly all of it: a hundredth is for retry partitions.
OURS_PER_S = 0.99 * RATE_PER_S
LIMITED = replace(RULES, rate_per_s=RATE_PER_S)


def played(world: FairWorld, seconds: float, *, held_s: float = 0.0) -> list[bytes | None]:
    """Time passes in looks, and what starts ends after so many seconds; the keys that started."""
    keys: list[bytes | None] = []
    for _ in range(round(seconds * 50)):
        for delivery in list(world.running_now()):
            if world.now_s - delivery.started_s >= held_s:
                world.end(delivery)
        keys += [delivery.key for delivery in world.fill()]
        world.turn()
    return keys


@pytest.mark.parametrize("held_s", [0.0, 0.05], ids=["at once", "two of twenty slots"])
def test_a_key_that_floods_a_rate_holds_up_no_other(held_s: float) -> None:
    """One of its records is before a quiet one at most."""
    world = FairWorld(LIMITED)
    world.send(b"flood", 500)
    played(world, 1.0, held_s=held_s)
    assert set(world.fair.waiting) == {b"flood"}
    for quiet in (b"a", b"b", b"c"):
        world.send(quiet)
        keys = played(world, 1.0, held_s=held_s)
        assert keys.index(quiet) <= 1
        assert keys.count(b"flood") == pytest.approx(OURS_PER_S - 1, abs=2)


def test_all_of_the_rate_is_used() -> None:
    """A noisy key waits for others, and never for nothing."""
    world = FairWorld(LIMITED)
    world.send(b"flood", 500)
    assert len(played(world, 5.0)) == pytest.approx(5.0 * OURS_PER_S, abs=2)


def test_noisy_keys_share_the_rate() -> None:
    """The one that was found first does not have it all, although no slot is ever scarce."""
    world = FairWorld(LIMITED)
    world.send(b"first", 300)
    played(world, 2.0)
    world.send(b"second", 300)
    played(world, 4.0)
    had = Counter(played(world, 4.0))
    assert set(world.fair.waiting) == {b"first", b"second"}
    assert had[b"first"] == pytest.approx(had[b"second"], rel=0.2)


def test_many_even_keys_go_in_their_order() -> None:
    """None has more than a tenth: what waits for the rate is what came last."""
    world = FairWorld(LIMITED)
    for _ in range(20):
        for key in range(20):
            world.send(b"%d" % key)
    keys = played(world, 5.0)
    assert not world.fair.waiting
    assert keys == [b"%d" % (number % 20) for number in range(len(keys))]


def test_a_key_is_noisy_only_while_something_waits_for_the_rate() -> None:
    """It may take every token that nobody else wants."""
    world = FairWorld(LIMITED)
    for _ in range(200):
        world.send(b"only")
        assert played(world, 0.1) == [b"only"]
        assert not world.fair.waiting


def test_in_key_order_a_key_has_one_record_at_a_time() -> None:
    """Its lane goes behind the others' after each."""
    world = FairWorld(replace(BY_KEY, rate_per_s=RATE_PER_S))
    world.send(b"flood", 200)
    played(world, 1.0)
    world.send(b"quiet", 3)
    keys = played(world, 1.0)
    assert [n for n, key in enumerate(keys) if key == b"quiet"][-1] <= 6


def test_redeliveries_and_records_without_a_key_take_no_key_s_tokens() -> None:
    """Of redeliveries half of the tokens are the most that others leave."""
    world = FairWorld(LIMITED)
    world.send(None, 100)
    played(world, 1.0)
    assert not world.fair.waiting
    world.send(b"quiet")
    assert b"quiet" not in played(world, 0.5)


def test_what_a_key_took_long_ago_counts_no_more() -> None:
    """Tokens that others took since let it be forgotten."""
    world = FairWorld(LIMITED)
    world.send(b"flood", 3 * FEWEST_TOKENS)
    world.send(b"late", 2)
    played(world, 2.0)
    assert not world.fair.waiting
    for number in range(6 * TOKENS):
        world.send(b"%d" % number)
    played(world, 6 * TOKENS / OURS_PER_S + 1)
    assert b"flood" not in world.fair._taken
