"""Runs the simulation's command in a process of its own, which coverage does not trace.

Traced, a seed takes ten times as long; what it covers, the tests of the core and the runtime cover
too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def simulate(
    *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.simulation` with these arguments."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COVERAGE", "COV_"))}
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **(env or {})},
    )
