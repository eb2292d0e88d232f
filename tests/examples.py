"""How much of a property is tried: the same examples in every run, others and more on demand.

What a run draws must not decide whether a change lands: so a property is given the examples that
its own text determines, on any machine. `make explore` draws others, and more of them; what it
finds becomes a test of its own, or an `@example`.

    ACKFLOOR_EXPLORE=20 python -m pytest tests/framework/core/engine/test_engine_model.py
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: How many times as many examples, drawn at random; 0: those of every run.
EXPLORE = int(os.environ.get("ACKFLOOR_EXPLORE", "0"))

# A busy machine must not fail a property: how long an example takes is no property of ours.
settings.register_profile(
    "ours",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EXPLORE,
    max_examples=100 * max(1, EXPLORE),
)
settings.load_profile("ours")


def examples(count: int, steps: int = 50) -> settings:
    """So many examples in every run; of a state machine, with so many steps each."""
    return settings(max_examples=count * max(1, EXPLORE), stateful_step_count=steps)
