"""Rows of several clusters in one table: their messages are not mixed, and no name is guessed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from ackfloor import SettingError
from ackfloor_monitoring.spark import notebook
from ackfloor_monitoring.spark.audit.audit_job import audit
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.spark_errors import (
    ClusterRefused,
    NothingToReport,
    StreamBroken,
    TableRefused,
)
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.clusters import checked_name, require_one
from tests.monitoring.spark.failure_rows import NOON, dead, frame
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.migrate")
ORIGIN: dict[str, Any] = {"origin_topic": "orders", "origin_partition": 0, "origin_offset": 5}


def life(cluster: str | None) -> list[dict[str, Any]]:
    """A message that failed twice, in the topics of a cluster: the names are those of another."""
    shared = {**ORIGIN, "cluster": cluster, "key": b"k", "first_failed_at": NOON}
    retry = {"topic": "orders--billing--retry-5s", "stage": "retry", "tier": "5s"}
    due = NOON + timedelta(seconds=5)
    return [
        dead(1, topic_id=f"r{cluster}", attempt=1, not_before=due, **retry, **shared),
        dead(1, topic_id=f"d{cluster}", attempt=2, **shared),
    ]


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of two clusters."""
    table = str(tmp_path_factory.mktemp("clusters") / "failures")
    store.open_table(spark, table)
    store.append(frame(spark, [*life("eu"), *life("us")]), table)
    return table


def test_the_same_place_in_two_clusters_is_two_messages(spark: SparkSession, both: str) -> None:
    """In SQL, in lives, in the report; the audit sees neither doubles nor gaps."""
    failures = store.read_failures(spark, both)
    assert failures.select("message").distinct().count() == 2
    lives = notebook.lives(failures).collect()
    assert sorted((row.message.cluster, row.outcome, row.attempts) for row in lives) == [
        ("eu", "dead", 2),
        ("us", "dead", 2),
    ]
    made = build_report(failures, None, table=both, since=Since(), made_at=NOON)
    assert (made.totals.messages, made.totals.dead) == (2, 2)
    seen = audit(spark, failures, None, grace_s=0, most=9)
    assert (seen.messages, seen.counts) == (2, {})


def test_a_question_may_be_about_one_cluster(spark: SparkSession, both: str) -> None:
    """One that is not there is told, with those that are; of brokers it has to be one."""
    made = failure_history(
        spark, both, group=None, cluster="us", since=Since(), clients=None, made_at=NOON
    )
    assert made.totals.messages == 1
    with pytest.raises(NothingToReport, match="no row of cluster 'asia'; it has eu, us"):
        failure_history(
            spark, both, group=None, cluster="asia", since=Since(), clients=None, made_at=NOON
        )
    failures = store.read_failures(spark, both)
    with pytest.raises(ClusterRefused, match=r"several clusters \(eu, us\); name the one"):
        require_one(failures, both)
    require_one(failures.where("cluster = 'eu'"), both)


def migrated(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Run the command in the tests' session."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    return CliRunner().invoke(spark_app, ["migrate", *arguments])


@pytest.mark.kafka
def test_an_old_table_takes_up_a_second_cluster(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was said of which cluster its rows are: they are read as of that one, no file is
    rewritten, and every ingest has to name its cluster from then on."""
    scene.create("dlq")
    scene.produce("dlq", 3)
    scene.ingest(spark)
    earlier = scene.earlier(spark, "cluster", "idempotency_key")
    scene.table = earlier
    before = set(Path(earlier).rglob("*.parquet"))
    with pytest.raises(ClusterRefused, match="its rows name no cluster; say which they are of"):
        scene.ingest(spark, cluster="us")
    done = migrated(spark, monkeypatch, "--table", earlier, "--cluster", "eu")
    assert done.exit_code == 0, done.exception
    assert "rows that name no cluster are of eu" in done.stdout
    again = migrated(spark, monkeypatch, "--table", earlier, "--cluster", "eu")
    assert again.stdout.startswith("no column was lacking")
    other = migrated(spark, monkeypatch, "--table", earlier, "--cluster", "us")
    assert isinstance(other.exception, ClusterRefused)
    assert set(Path(earlier).rglob("*.parquet")) == before
    scene.produce("dlq", 2)
    with pytest.raises(ClusterRefused, match=r"name their clusters \(eu\); name this one"):
        scene.ingest(spark)
    scene.ingest(spark, cluster="us")
    assert of_clusters(store.read_failures(spark, earlier)) == {"eu": 3, "us": 2}
    assert scene.counts(spark) == {"dlq": 5}


def of_clusters(failures: DataFrame) -> dict[str, int]:
    """How many rows each has."""
    return {row["cluster"]: row["count"] for row in failures.groupBy("cluster").count().collect()}


@pytest.mark.kafka
def test_a_table_that_began_with_names_has_only_named_rows(
    spark: SparkSession, scene: Scene
) -> None:
    """A later ingest without one is refused before it has stored anything."""
    scene.create("dlq")
    scene.produce("dlq", 2)
    scene.ingest(spark, cluster="eu")
    scene.produce("dlq", 1)
    with pytest.raises(ClusterRefused, match="name this one"):
        scene.ingest(spark)
    assert of_clusters(store.read_failures(spark, scene.table)) == {"eu": 2}


@pytest.mark.kafka
def test_a_column_that_is_added_while_a_batch_is_stored_doubles_and_loses_nothing(
    spark: SparkSession, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a newer release adds it: the batch fails, the stream begins anew and goes on; so it does
    where the column came between two batches."""
    scene.create("dlq")
    scene.produce("dlq", 3)
    name = f"delta.`{scene.table}`"
    began, changed, append = tmp_path / "began", tmp_path / "changed", store.append

    def held_up(rows: DataFrame, table: str) -> None:
        append(rows if changed.exists() else waiting(rows, began, changed), table)

    monkeypatch.setattr(store, "append", held_up)
    with scene.running(spark) as work:
        scene.until(began.exists)
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (added_meanwhile STRING)")
        changed.touch()
        scene.until(lambda: work.stored.records == 3)
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (added_later STRING)")
        scene.produce("dlq", 4)
        scene.until(lambda: work.stored.records == 7)
    assert [type(error) for error in scene.noted.failures] == [StreamBroken]
    assert any("the table was changed meanwhile" in line for line in scene.told), scene.told
    assert scene.counts(spark) == {"dlq": 7}
    added = store.read_failures(spark, scene.table).select("added_meanwhile", "added_later")
    assert {tuple(row) for row in added.collect()} == {(None, None)}


def waiting(rows: DataFrame, began: Path, changed: Path) -> DataFrame:
    """Rows that are not written before somebody has changed the table."""

    def held(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        began.touch()
        while not changed.exists():
            time.sleep(0.05)
        yield from batches

    return rows.mapInArrow(held, rows.schema)


@pytest.mark.parametrize("name", ["", "eu west", "a'b", "x" * 101])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    """It is in an SQL statement, and in folders' names of others."""
    with pytest.raises(SettingError, match=r"--cluster=.* is no name of a cluster; take up to"):
        checked_name(name, "--cluster")


def test_what_is_no_table_is_not_migrated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor made."""
    done = migrated(spark, monkeypatch, "--table", str(tmp_path / "none"))
    assert isinstance(done.exception, TableRefused)
    assert not (tmp_path / "none").exists()
