"""The broker of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackfloor.testing import KafkaCluster


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One of their own: an index reads every dead-letter topic that a broker has."""
    with KafkaCluster() as cluster:
        yield cluster.bootstrap_servers
