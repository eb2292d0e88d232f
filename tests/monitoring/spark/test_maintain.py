"""`ackfloor spark maintain`: fewer files and the same rows, beside readers and a running ingest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from typer.testing import CliRunner

from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.forget.erasure_notes import ErasureNote, notes_since, write_note
from ackfloor_monitoring.spark.spark_errors import TableRefused
from ackfloor_monitoring.spark.table import store, upkeep
from tests.monitoring.spark.failure_rows import NOON, dead, frame
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
command = import_module("ackfloor_monitoring.spark.cli.maintain")
TODAY = datetime.now(UTC).date()
# Tomorrow is not over either where midnight comes during the test.
OLD, OVER, GOES_ON = (TODAY + timedelta(days=days) for days in (-200, -10, 1))
BATCHES = 6


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that each test copies: each batch has left a file in each of three days."""
    path = tmp_path_factory.mktemp("made") / "failures"
    store.open_table(spark, str(path))
    for number in range(BATCHES):
        rows = [dead(number, place, day=day) for place, day in enumerate((OLD, OVER, GOES_ON))]
        store.append(frame(spark, rows).coalesce(1), str(path))
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path, in_this_session: None) -> str:
    """A copy of it."""
    return str(shutil.copytree(made, tmp_path / "failures"))


@pytest.fixture
def in_this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the session of these tests."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)


def maintain(table: str, *arguments: str) -> dict[str, Any]:
    """Run the command; its JSON."""
    words = ["maintain", "--table", table, "-o", "json", *arguments]
    ended = CliRunner().invoke(spark_app, words, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def stored(spark: SparkSession, table: str) -> list[Row]:
    """The rows, in order."""
    rows = store.read_failures(spark, table)
    return rows.orderBy("partition", "offset").collect()


def version(spark: SparkSession, table: str) -> int:
    """The newest version of the table."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1")
    return int(history.collect()[0]["version"])


def on_disk(table: str) -> set[Path]:
    """The data files that are there, of whatever version."""
    return set(Path(table).glob("day=*/group=*/*.parquet"))


def test_it_says_what_it_would_do_and_does_that(spark: SparkSession, table: str) -> None:
    """A day that is over becomes one file, old days go, and all else is as it was: the rows, the
    table's properties, and what somebody reads who began before."""
    before = stored(spark, table)
    began = spark.read.format("delta").option("versionAsOf", version(spark, table)).load(table)
    properties, files = store._properties(spark, table), on_disk(table)
    expected = {
        "old_days": 1, "old_files": BATCHES, "days_to_merge": 1, "small_files": BATCHES,
        "dead_files": 0, "files": 3 * BATCHES,
    }  # fmt: skip
    dry = maintain(table, "--keep", "90d", "--dry-run")
    assert dry.pop("bytes") == sum(file.stat().st_size for file in files)
    assert dry == {**expected, "done": False}
    assert (version(spark, table), on_disk(table)) == (BATCHES, files)
    done = maintain(table, "--keep", "90d")
    done.pop("bytes")
    assert done == {**expected, "files": BATCHES + 1, "done": True}
    assert stored(spark, table) == [row for row in before if row["day"] != OLD]
    assert store._properties(spark, table) == properties
    assert files < on_disk(table)
    assert began.count() == len(before)
    at = version(spark, table)
    again = maintain(table, "--keep", "90d")
    assert (again["old_days"], again["days_to_merge"], again["files"]) == (0, 0, BATCHES + 1)
    assert version(spark, table) == at, "a second run has nothing to do"


def test_files_without_use_are_deleted(spark: SparkSession, table: str) -> None:
    """After the time that is the table's property, which is seven days; and nothing else."""
    note = ErasureNote("2026-11-21T12:00:00+00:00", "me", rows=1, messages=1, done=True)
    write_note(spark, table, note)
    maintain(table)
    rows = stored(spark, table)
    assert len(on_disk(table)) == 3 * BATCHES + 2
    spark.sql(
        f"ALTER TABLE delta.`{table}` "
        "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    assert maintain(table, "--dry-run")["dead_files"] == 2 * BATCHES
    maintain(table)
    assert len(on_disk(table)) == BATCHES + 2
    assert stored(spark, table) == rows
    assert notes_since(spark, table, NOON - timedelta(days=1)) == [note]


@pytest.mark.parametrize(
    ("words", "why"),
    [(["--keep", "soon"], "--keep"), ([], "no table of failures there")],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], why: str, tmp_path: Path, in_this_session: None
) -> None:
    """In one sentence."""
    ended = CliRunner().invoke(spark_app, ["maintain", "--table", str(tmp_path), *words])
    assert ended.exit_code != 0
    assert why in ended.output + str(ended.exception)


def test_where_one_program_may_write_ingest_does_it(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless Spark is given a store for several; a dry run writes nothing."""

    class Files:
        def __getattr__(self, _: str) -> Any:
            return lambda *_: self

        getScheme = staticmethod(lambda: "s3a")  # noqa: N815 - as Java has it

    before = version(spark, table)
    with monkeypatch.context() as patched:
        patched.setattr(store, "file_system", lambda *_: (Files(), None))
        maintain(table, "--dry-run")
        with pytest.raises(TableRefused, match=r"leave this to `ackfloor spark ingest`.*s3a\.impl"):
            upkeep.keep_up(spark, table, TODAY, None)
        spark.conf.set("spark.delta.logStore.s3a.impl", "a.store.for.Several")
        try:
            upkeep._refuse_one_writer(spark, table)
        finally:
            spark.conf.unset("spark.delta.logStore.s3a.impl")
    assert version(spark, table) == before


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_it_runs_beside_an_ingest(
    spark: SparkSession, scene: Scene, in_this_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which merges files as well: each record is there once, and no batch of it fails."""
    monkeypatch.setattr(upkeep, "MANY_FILES", 2)
    scene.create("dlq", partitions=1)
    with scene.running(spark) as work:
        for part in range(1, 4):
            scene.produce("dlq", 10, apart_ms=1)
            if part > 1:
                maintain(scene.table)
            scene.until(lambda wanted=10 * part: work.stored.records >= wanted)  # type: ignore[misc]
        assert not scene.ended
    assert scene.noted.failures == []
    assert maintain(scene.table)["files"] == 1
    assert scene.counts(spark) == {"dlq": 30}
