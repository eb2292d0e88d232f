"""`ackfloor spark watch`: what is refused, and that it ends in order."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ackfloor import ConfigError, SettingError
from ackfloor_monitoring.spark.cli import spark_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.monitoring.spark.scene import Scene

# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.watch")


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--look-back", "7", "--look-back='7': a bare number has no unit"),
        ("--look-back", "10m", "--look-back='10m': too short to say what is usual"),
        ("--window", "5", "--window='5': a bare number has no unit"),
        ("--surge-factor", "1", "--surge-factor=1.0: a usual count would be a surge"),
        ("--surge-minimum", "0", "--surge-minimum=0: one failure is no surge"),
        ("--every", "soon", "--every='soon': not a duration"),
        ("--keep", "-1d", "--keep='-1d': a duration can't be negative"),
        ("--listen", "9610", "listen='9610': expected host:port"),
    ],
)
def test_a_bad_option_is_a_sentence(option: str, value: str, sentence: str) -> None:
    """It names the option, and comes before Spark is started."""
    result = CliRunner().invoke(spark_app, ["watch", "--table", "t", option, value])
    assert isinstance(result.exception, SettingError)
    assert str(result.exception).startswith(sentence)


def test_an_address_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(spark_app, ["watch", "--table", "t", "--listen", listen])
    assert isinstance(result.exception, ConfigError)
    assert "can't listen there: Address already in use; set --listen" in str(result.exception)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_signal_ends_it_in_order(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what it has stored, its exit code is 0, and signals mean what they did before."""

    @contextmanager
    def session(_name: str, *, lasting: bool) -> Iterator[SparkSession]:
        assert lasting
        yield spark

    def once_it_watches() -> None:
        scene.until((Path(scene.table) / "_ingest").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(command, "spark_session", session)
    scene.create("dlq")
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(once_it_watches)
        ended = CliRunner().invoke(
            spark_app,
            ["watch", "--table", scene.table, "--group", scene.group, "--every", "200ms",
             "--bootstrap-servers", scene.bootstrap_servers, "--listen", "127.0.0.1:0"],
        )  # fmt: skip
    assert ended.exit_code == 0, ended.output
    assert ended.stderr.startswith("metrics: http://127.0.0.1:")
    assert ended.stdout == f"stored 0 records in 0 batches in {scene.table}\n"
    assert signal.getsignal(signal.SIGTERM) is before
