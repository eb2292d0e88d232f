"""Seeds of the simulation: other ones in each run, and the outages of known size."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.simulation.outages import LONG, OUTAGES
from tests.simulation.untraced import simulate

#: Other ones in each run; `make soak` plays ten times as many.
SEEDS = 500
#: Parts of them, so that none comes near the time that a test has on a busy machine.
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept(part: int) -> None:
    """One that fails is told with what replays it."""
    first = SystemRandom().randrange(1_000_000_000)
    run = simulate("--from", str(first), "--seeds", str(SEEDS // PARTS), "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS // PARTS} seeds from {first}" in run.stdout


def test_a_lane_over_several_partitions_keeps_its_order() -> None:
    """A record of a retry topic is discarded, and lost before its commit; the next one's output
    would go first, and its own, when it is handled after all, behind."""
    run = simulate("--from", "900247", "--seeds", "1", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_record_that_left_its_lane_has_no_place_in_it() -> None:
    """A dead letter is decided, the lane goes on, and the partition is lost before it is written:
    the record comes again from its source, and its outputs behind those of its successor."""
    run = simulate("--from", "21050928", "--seeds", "1", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_is_produced_at_one_moment_may_come_in_any_order() -> None:
    """Six records for one slot: that one is the first without the sick record is no delay."""
    run = simulate("--from", "40001292", "--seeds", "1", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr


#: One of each kind in its full size; `make soak` plays all of them so.
WHOLE = frozenset({"burst-1", "share-60%-20x", "dead-hang", "poison-60%", "restart-400"})


@pytest.mark.parametrize("name", sorted(OUTAGES.keys() - LONG))
def test_an_outage_does_what_is_promised(name: str) -> None:
    """Another seed each time: healthy work goes on, and failures leave as slowly as they may."""
    first = str(SystemRandom().randrange(1_000_000_000))
    size = "1" if name in WHOLE else "0.1"
    run = simulate(
        "--outages", name, "--from", first, "--seeds", "1", "--jobs", "1", "--size", size
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"| {name} |" in run.stdout
