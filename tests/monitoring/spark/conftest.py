"""One Spark for all tests of this folder: starting it takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.setup.session import local_session
from ackfloor_monitoring.spark.table import ingest
from tests.monitoring.spark.interpreted import INTERPRETED
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as the jobs make it, but for compiled queries."""
    with local_session("tests", cores=2, config=INTERPRETED) as session:
        yield session


@pytest.fixture
def scene(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A group with no topics yet, and a table that is not there yet. Streams are looked after
    every few moments: each step of a test would wait for the next second."""
    monkeypatch.setattr(ingest, "_LOOK_EVERY_S", 0.1)
    return Scene(bootstrap_servers, str(tmp_path / "failures"))
