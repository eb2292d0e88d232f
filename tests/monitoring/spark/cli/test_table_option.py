"""`--table` of every Spark command: a relative path is one of the current folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
import typer
from typer.testing import CliRunner

from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.cli.parameters import whole_path
from ackfloor_monitoring.spark.table import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS: Mapping[str, click.Command] = vars(typer.main.get_command(spark_app))["commands"]
WITH_TABLE = sorted(
    name for name, each in COMMANDS.items() if any(p.name == "table" for p in each.params)
)


def run(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command there, with the table `failures`."""
    program = [sys.executable, "-m", "ackfloor", "spark", command, "--table", "failures"]
    return subprocess.run(
        [*program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_all_commands_of_the_table_are_here() -> None:
    """The next test looks at each of them."""
    assert WITH_TABLE == [
        "audit",
        "forget",
        "ingest",
        "maintain",
        "migrate",
        "replay",
        "report",
        "sql",
        "watch",
        "whatif",
    ]


@pytest.mark.parametrize("name", WITH_TABLE)
def test_a_relative_table_lies_in_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every command, from its option and from the environment."""
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[name]
    rest = ["--where", "true"] if name == "replay" else []
    rest += ["--max-redeliveries", "3"] if name == "whatif" else []
    rest += ["SELECT 1"] if name == "sql" else []
    rest += ["--key", "k"] if name == "forget" else []
    given = command.make_context(name, ["--table", "failures", *rest])
    assert given.params["table"] == str(tmp_path / "failures")
    monkeypatch.setenv("ACKFLOOR_SPARK_TABLE", "../failures")
    given = command.make_context(name, list(rest))
    assert given.params["table"] == str(tmp_path.parent / "failures")


@pytest.mark.parametrize(
    "path", ["/data/failures", "s3a://bucket/failures", "hdfs://name/failures", "file:/failures"]
)
def test_a_whole_path_stays_as_it_is(path: str) -> None:
    """Its file system is Spark's matter."""
    assert whole_path(path) == path


def test_a_table_of_no_known_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one, and a relative one on a cluster; before Spark is started."""
    empty = CliRunner().invoke(spark_app, ["whatif", "--table", ""])
    assert (empty.exit_code, "is empty" in empty.stderr) == (2, True)
    monkeypatch.setattr(
        import_module("ackfloor_monitoring.spark.table.table_path"), "submitted", lambda: True
    )
    relative = CliRunner().invoke(spark_app, ["whatif", "--table", "failures"])
    assert (relative.exit_code, "relative" in relative.stderr) == (2, True)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_path_without_a_table_gets_one_line(tmp_path: Path) -> None:
    """No JSON and no stack of Java before it. A process of its own: what PySpark logs goes to the
    standard error that it found when its logger was made."""
    done = run(tmp_path, "whatif", "--max-redeliveries", "3")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: table {tmp_path / 'failures'}: no table of failures there")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_unknown_column_of_a_relative_table_gets_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The table is found, and the columns that it has are told; by a query, how to see them."""
    store.open_table(spark, str(tmp_path / "failures"))
    asked = run(tmp_path, "sql", "SELECT nosuch FROM failures")
    assert asked.returncode == 2
    [line] = asked.stderr.splitlines()
    assert line.startswith("error: query: ")
    assert "`DESCRIBE failures` shows the columns" in line
    done = run(tmp_path, "replay", "--where", "nosuch = 1", "--bootstrap-servers", "localhost:1")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: --where 'nosuch = 1': ")
    assert "the columns are " in line
