"""Fixtures of the Kafka shell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor.kafka.consume.source import KafkaSource
from tests.framework.kafka.wire import read_by_another


@pytest.fixture
def sources() -> Iterator[list[KafkaSource]]:
    """Sources to close when the test is over."""
    opened: list[KafkaSource] = []
    yield opened
    for source in opened:
        source.close()


@pytest.fixture(params=["group", "reader"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the group's consumer reads every topic, and once another client does it for it."""
    if request.param == "reader":
        read_by_another(monkeypatch)
