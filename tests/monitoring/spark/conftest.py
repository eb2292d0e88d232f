"""One Spark for all tests of this folder: starting it takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.class_archive import archive_file, make_archive
from ackfloor_monitoring.spark.jars import spark_jars
from ackfloor_monitoring.spark.session import chosen_java, local_session
from tests.monitoring.spark.interpreted import INTERPRETED
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as the jobs make it, but for compiled queries.

    With the class archive that `ackfloor spark doctor` makes: the first time on a machine it takes
    a minute, and then saves ten seconds of a core for each Java that tests start.
    """
    make_archive(archive_file(chosen_java(), spark_jars()))
    with local_session("tests", cores=2, config=INTERPRETED) as session:
        yield session


@pytest.fixture
def scene(bootstrap_servers: str, tmp_path: Path) -> Scene:
    """A group with no topics yet, and a table that is not there yet."""
    return Scene(bootstrap_servers, str(tmp_path / "failures"))
