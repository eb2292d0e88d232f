"""A seed gives one run, everywhere; one that fails is made smaller; and safeguards are missed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.plan import make_plan
from tests.simulation.safeguards import SAFEGUARDS, Safeguard
from tests.simulation.shrink import shrunk
from tests.simulation.tries import caught
from tests.simulation.untraced import simulate, untraced
from tests.simulation.world import play

#: Of these the lack is noticed within a few seeds; `make soak` takes out all.
QUICK = (
    "the floor is the lowest open offset",
    "a park does not settle when it is sent",
    "a late answer changes nothing",
    "an answer by hand counts once",
    "a partition that leaves is drained and committed",
    "a lane starts one at a time",
    "every exception is its record's outcome",
    "the budget of retries ends",
)
BY_NAME = {safeguard.name: safeguard for safeguard in SAFEGUARDS}


@pytest.fixture(autouse=True)
def without_coverage() -> Iterator[None]:
    """Dozens of seeds are played here."""
    with untraced():
        yield


@pytest.mark.parametrize("seed", [7, 820_292])
def test_a_seed_has_one_trace(seed: int) -> None:
    """In processes whose hashes differ, too."""
    runs = [
        simulate("--from", str(seed), "--trace", env={"PYTHONHASHSEED": hashes})
        for hashes in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "every promise was kept" in runs[0].stdout


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda safeguard: safeguard.name)
def test_a_safeguard_can_be_taken_out(safeguard: Safeguard) -> None:
    """It is where the list says, and it is back afterwards."""
    with safeguard.taken_out():
        pass
    assert play(make_plan(1)).broken is None


@pytest.mark.parametrize("name", QUICK)
def test_the_oracle_bites(name: str) -> None:
    """Without a safeguard a promise is broken, and that is noticed."""
    assert caught(BY_NAME[name], 1, 40) is not None


def test_every_invariant_has_a_safeguard() -> None:
    """All that have a number."""
    assert {safeguard.invariant for safeguard in SAFEGUARDS} == set(range(1, 15))
    assert len(SAFEGUARDS) >= 20


def test_a_failing_run_is_made_smaller() -> None:
    """What is left breaks the same rule, with fewer records and faults."""
    with BY_NAME["the budget of retries ends"].taken_out():
        found = caught(BY_NAME["the budget of retries ends"], 1, 40)
        assert found is not None
        plan = make_plan(found[0])
        broken = play(plan).broken
        assert broken is not None
        small = shrunk(plan, broken.rule)
        again = play(small).broken
    assert again is not None
    assert again.rule == broken.rule
    assert len(small.records) < len(plan.records)
