"""`ackfloor dlq replay`, killed twice and resumed, sends each dead letter of its group once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.dlq_kills import prove


@pytest.mark.kafka
@pytest.mark.e2e
def test_the_command_killed_twice_and_resumed_sends_each_once(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    """For more: python -m tests.e2e.dlq_kills --letters 100000 --groups 40."""
    found = prove(bootstrap_servers, tmp_path, letters=3_000, groups=8, rate=100, kills=2)
    assert found.killed_at
    assert found.sound, found
    assert found.groups == 8
