"""`ackfloor spark doctor`: everything is here but a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.setup import spark_checks as doctor
from ackfloor_monitoring.spark.table import kafka_reads as io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_the_doctor_finds_everything_here_but_a_broker(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens on port 9: that alone is bad, is told in a sentence, and exits with 1."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(doctor, "spark_session", session)
    monkeypatch.setattr(io, "CONNECT_TIMEOUT_S", 0.5)
    given = ["doctor", "-o", "json", "--bootstrap-servers", "localhost:9"]
    done = CliRunner().invoke(spark_app, given)
    results = {each["check"]: each for each in json.loads(done.stdout)}
    assert {check for check, each in results.items() if each["state"] != "ok"} == {"brokers"}
    assert "no Kafka broker answered" in results["brokers"]["fix"]
    assert "local[" in results["session"]["detail"]
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
