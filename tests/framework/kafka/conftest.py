"""Fixtures of the Kafka shell."""

from __future__ import annotations

import pytest

from tests.framework.kafka.wire import read_by_another


@pytest.fixture(params=["group", "reader"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the group's consumer reads every topic, and once another client does it for it."""
    if request.param == "reader":
        read_by_another(monkeypatch)
