"""What ingest does beside storing: small files merged, dead ones deleted, an outage waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor.testing.local_kafka.cluster import KafkaCluster
from ackfloor_monitoring.spark.table import ingest, store, upkeep
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
]
_DAY_S = 86_400.0
#: Spark asks three times before it gives up: for minutes, with Kafka's defaults.
IMPATIENT = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "2000"}


def test_small_files_of_a_folder_become_one(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as there are many: at the start of an ingest, and behind batches of a long one."""
    scene.create("dlq", partitions=1)
    for _ in range(2):
        scene.produce("dlq", 5, apart_ms=1)
        scene.ingest(spark)
    assert merges(spark, scene) == 0, "two are not many"
    monkeypatch.setattr(upkeep, "MANY_FILES", 2)
    scene.produce("dlq", 5, apart_ms=1)
    scene.ingest(spark)
    assert merges(spark, scene) == 2, "the two that were there, and behind the batch"
    assert scene.counts(spark) == {"dlq": 15}


def test_old_days_go_and_their_files_after_a_week(spark: SparkSession, scene: Scene) -> None:
    """Days are forgotten and stay so, also where that leaves nothing of a partition, so that it is
    read from its start again. Seven days are the table's property: with none, files go at the next
    cleaning."""
    scene.create("dlq", partitions=1)
    scene.produce("dlq", 20)
    scene.ingest(spark)
    kept = data_files(scene)
    for _ in range(2):
        scene.ingest(spark, keep_s=_DAY_S)  # every day is older
        assert scene.counts(spark) == {}
    today = datetime.now(UTC).date()
    store.clean(spark, scene.table, today + timedelta(days=1))
    assert data_files(scene) == kept
    spark.sql(
        f"ALTER TABLE delta.`{scene.table}` "
        "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    store.clean(spark, scene.table, today + timedelta(days=1))
    assert data_files(scene) == kept, "not twice a day"
    store.clean(spark, scene.table, today + timedelta(days=2))
    assert data_files(scene) == set()


def test_a_broker_that_comes_back_is_read_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while a stream runs: it waits, and then stores what came since, once."""
    with KafkaCluster() as cluster:
        scene = Scene(cluster.bootstrap_servers, str(tmp_path / "failures"))
        scene.create("retry-5s", "dlq")
        scene.produce("dlq", 20)
        monkeypatch.setattr(ingest, "_ASK_AGAIN_AFTER_S", 0.5)
        with scene.running(spark, kafka=scene.plan().kafka | IMPATIENT) as work:
            scene.until(lambda: work.stored.records == 20)
            cluster.kill(1)
            scene.until(lambda: any("waits for the brokers" in line for line in scene.told))
            cluster.start_node(1)
            scene.produce("retry-5s", 30)
            scene.produce("dlq", 10)
            scene.until(lambda: work.stored.records == 60)
        assert scene.counts(spark) == {"retry-5s": 30, "dlq": 30}


def test_brokers_that_go_away_while_a_batch_is_read_are_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when a batch has its offsets and none of its records: none is lost, none twice."""
    append, killed = store.append, list[int]()
    with KafkaCluster() as cluster:
        scene = Scene(cluster.bootstrap_servers, str(tmp_path / "failures"))

        def interrupted(rows: DataFrame, table: str) -> None:
            if not killed:
                killed.append(1)
                cluster.kill(1)
            append(rows, table)

        scene.create("retry-5s", "dlq")
        scene.produce("dlq", 20)
        monkeypatch.setattr(store, "append", interrupted)
        monkeypatch.setattr(ingest, "_ASK_AGAIN_AFTER_S", 0.5)
        # Spark waits two minutes for a record, by default.
        impatient = {"kafkaConsumer.pollTimeoutMs": "2000"} | IMPATIENT
        with scene.running(spark, kafka=scene.plan().kafka | impatient) as work:
            scene.until(lambda: any("waits for the brokers" in line for line in scene.told))
            cluster.start_node(1)
            scene.until(lambda: work.stored.records == 20)
        assert scene.counts(spark) == {"dlq": 20}


def merges(spark: SparkSession, scene: Scene) -> int:
    """How many commits of the table were merges."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{scene.table}`").collect()
    return [commit["operation"] for commit in history].count("OPTIMIZE")


def data_files(scene: Scene) -> set[Path]:
    """The data files that are there, of whatever version."""
    return set(Path(scene.table).glob("day=*/group=*/*.parquet"))
