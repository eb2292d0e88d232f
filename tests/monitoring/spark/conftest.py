"""One Spark for all tests of this folder: starting it takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session as the jobs make it, with one task at a time."""
    with local_session("tests", cores=2) as session:
        yield session
