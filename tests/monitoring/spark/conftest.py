"""One Spark for all tests of this folder: starting it takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.session import local_session
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as the jobs make it, but for compiled queries.

    Most queries here run once, over a few dozen rows: to compile them takes most of the time. As
    users have them they run in the tests that start a session of their own: the demo, the command
    on the bundled Java, the cluster, the kills.
    """
    with local_session("tests", cores=2) as session:
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        session.conf.set("spark.sql.adaptive.enabled", "false")
        yield session


@pytest.fixture
def scene(bootstrap_servers: str, tmp_path: Path) -> Scene:
    """A group with no topics yet, and a table that is not there yet."""
    return Scene(bootstrap_servers, str(tmp_path / "failures"))
