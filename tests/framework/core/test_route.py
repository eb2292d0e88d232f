"""Route: what a subscribed topic is."""

from __future__ import annotations

import pytest

from ackfloor.core.state.worker_state import LOW_PRIORITY_S, Route


@pytest.mark.parametrize(
    ("tier_s", "quarantines", "high_priority"),
    [
        (None, False, False),
        (LOW_PRIORITY_S / 2, False, True),
        (LOW_PRIORITY_S, False, False),
        (LOW_PRIORITY_S / 2, True, False),
    ],
)
def test_a_tier_that_holds_its_records_for_a_moment_has_a_high_priority(
    tier_s: float | None, quarantines: bool, high_priority: bool
) -> None:
    """It can't be read a moment later; a source topic and a slower tier can.

    One that keeps the order of keys is read by the worker that has the source's partition.
    """
    assert Route("bill", "orders", tier_s, quarantines).high_priority is high_priority
