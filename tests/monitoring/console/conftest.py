"""The broker of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor.testing import KafkaCluster
from ackfloor_monitoring.console.reads import searches
from tests.monitoring.console.shown_cluster import kafka, run  # noqa: F401 -- fixtures


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One of their own: an index reads every dead-letter topic that a broker has."""
    with KafkaCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an answer may take longer than a person would wait."""
    monkeypatch.setattr(searches, "PATIENCE_S", 120.0)
