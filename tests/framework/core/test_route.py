"""Route: what a subscribed topic is."""

from __future__ import annotations

import pytest

from ackfloor.core.state.worker_state import UNHURRIED_S, Route


@pytest.mark.parametrize(
    ("tier_s", "hurried"), [(None, False), (UNHURRIED_S / 2, True), (UNHURRIED_S, False)]
)
def test_a_tier_that_holds_its_records_for_a_moment_is_hurried(
    tier_s: float | None, hurried: bool
) -> None:
    """It can't be read a moment later; a source topic and a slower tier can."""
    assert Route("bill", "orders", tier_s).hurried is hurried
