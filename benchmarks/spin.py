"""The handler that `processes.py` measures: 1 ms of a core, in a module that can be imported."""

from __future__ import annotations

import os

#: Steps that take about 1 ms on the machine at hand; measured once for all cases of a run.
STEPS = int(os.environ.get("SPIN_STEPS", "0"))


def spin(value: bytes) -> None:
    """Keep a core busy: always the same work, however long it takes."""
    total = 0
    for step in range(STEPS):
        total += step ^ len(value)
