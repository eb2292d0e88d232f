"""Seeds of the simulation: other ones in each run, and the outages of known size."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.simulation.outages import LONG, OUTAGES
from tests.simulation.untraced import simulate

#: Parts of the thousand, so that none comes near the time that a test has on a busy machine.
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept(part: int) -> None:
    """A thousand seeds in all; one that fails is told with what replays it."""
    first = SystemRandom().randrange(1_000_000_000)
    run = simulate("--from", str(first), "--seeds", str(1_000 // PARTS), "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{1_000 // PARTS} seeds from {first}" in run.stdout


@pytest.mark.parametrize("name", sorted(OUTAGES.keys() - LONG))
def test_an_outage_does_what_is_promised(name: str) -> None:
    """Another seed each time: healthy work goes on, and failures leave as slowly as they may."""
    first = str(SystemRandom().randrange(1_000_000_000))
    run = simulate("--outages", name, "--from", first, "--seeds", "1", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"| {name} |" in run.stdout
