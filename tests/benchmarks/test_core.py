"""The core does no more for a record than it did: counted in instructions, which no load moves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.core import SCENES, TOLERANCE, baseline, regressions, this_python
from tests.structure.sources import REPOSITORY


@pytest.mark.skipif(baseline() is None, reason=f"no baseline for Python {this_python()}")
def test_nothing_costs_more_than_the_baseline() -> None:
    """In a process of its own, because coverage counts by the same means.

    After a change that is worth what it costs: `python -m benchmarks.core --write`.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.core"],
        cwd=REPOSITORY,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_costs_more_is_named() -> None:
    """Beyond the tolerance, and what the baseline does not know."""
    before = dict.fromkeys(SCENES, 100.0)
    assert regressions(dict.fromkeys(SCENES, 100.0 * (1 + TOLERANCE)), before) == []
    first = next(iter(SCENES))
    dearer = {**before, first: 106.0}
    assert regressions(dearer, before) == [f"{first}: 106.0 instructions a record, 100.0 before"]
    del before[first]
    assert len(regressions(dearer, before)) == 1
