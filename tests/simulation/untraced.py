"""Runs the simulation where coverage does not trace it: in this process, or as a command.

Traced, a seed takes ten times as long; what it covers, the tests of the core and the runtime cover
too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from coverage import Coverage


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


@contextmanager
def untraced() -> Iterator[None]:
    """The block runs without coverage; afterwards it traces on, where it did."""
    measuring = Coverage.current()
    if measuring is None:
        yield
        return
    measuring.stop()
    try:
        yield
    finally:
        measuring.start()
