"""A redrive that is killed and resumed sends nothing twice and leaves nothing behind."""

from __future__ import annotations

import pytest

from tests.e2e.redrive_kills import prove


@pytest.mark.kafka
@pytest.mark.e2e
def test_killed_and_resumed_it_sends_each_dead_letter_once(bootstrap_servers: str) -> None:
    """Three kills; for more: python -m tests.e2e.redrive_kills --letters 50000 --kills 20."""
    found = prove(bootstrap_servers, letters=3_000, kills=3, seed=7, rate=300)
    assert found.kills == 3
    assert (found.in_target, found.noted) == (3_000, 3_000)
