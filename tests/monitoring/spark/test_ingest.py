"""Every record of the retry and dead-letter topics is in the table, once, whatever happens."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition

from ackfloor import KafkaUnreachable
from ackfloor.core.records.redaction import Redaction
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import (
    AnotherIngest,
    NoTopics,
    StreamBroken,
    TableRefused,
)
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.columns import (
    FAILURE,
)
from tests.monitoring.spark.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
]


LARGE = os.urandom(10_000_000)
#: Value and headers.
ODD: list[tuple[bytes | None, list[tuple[str, bytes | None]]]] = [
    (LARGE, []),
    (b"many", [(f"h{n % 100}", b"%d" % n) for n in range(500)]),
    (b"\xff\xfe", [("ackfloor.handler", b"\xc3\x28"), ("", b"\xff")]),
    (None, [("ackfloor.failed_at", b"-62135510400000"), ("ackfloor.group", b"x" * 5_000)]),
    (b"", [("ackfloor.failed_at", b"253402214400000"), ("ackfloor.group", b"../..")]),
    (b"s", [("kafka_dlt-exception-fqcn", b"X"), ("__connect.errors.topic", b"t")]),
    (b"d", [("__dlq.errors.group", None), ("ackfloor.attempt", None)]),
]
SECRET = b"4111111111111111"


@dataclass(frozen=True)
class Runs:
    """One table, and how many records each run over its topics has stored."""

    scene: Scene
    stored: list[int]

    def rows(self, spark: SparkSession, ending: str) -> list[Row]:
        """What is stored of a topic of one partition."""
        table = store.read_failures(spark, self.scene.table)
        return table.where(table["topic"] == self.scene.topic(ending)).orderBy("offset").collect()


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    """Three runs, one after the other, on what the tests below look at; each takes its time."""
    scene = Scene(bootstrap_servers, str(tmp_path_factory.mktemp("runs") / "failures"))
    scene.create("retry-5s", "dlq")
    # Not changed afterwards: the broker says so before its log does.
    scene.create("retry-25s", partitions=1, **{"max.message.bytes": "12000000"})
    scene.create("retry-125s", partitions=1)
    scene.produce("retry-5s", 40)
    scene.produce("dlq", 10)
    _produce_odd(scene, "retry-25s")
    stored = [scene.ingest(spark).stored.records]
    _spoil_the_checkpoint(Path(scene.table))
    scene.produce("dlq", 5)
    _produce_secret(scene, "retry-125s")
    rules = Redaction(patterns=("[0-9]{16}",), fields=("email",))
    stored.append(scene.ingest(spark, rules=rules).stored.records)
    stored.append(scene.ingest(spark).stored.records)
    return Runs(scene, stored)


def _produce_odd(scene: Scene, ending: str) -> None:
    producer = Producer(
        {"bootstrap.servers": scene.bootstrap_servers, "message.max.bytes": 12_000_000}
    )
    for value, headers in ODD:
        producer.produce(scene.topic(ending), value, None, headers=headers)
    assert producer.flush(60) == 0


def _produce_secret(scene: Scene, ending: str) -> None:
    value = b'{"card": "%s", "email": "a@b"}' % SECRET
    headers = [("auth", SECRET), ("ackfloor.error.message", b"card " + SECRET)]
    scene.producer.produce(scene.topic(ending), value, SECRET, headers=headers)
    assert scene.producer.flush(60) == 0


def _spoil_the_checkpoint(table: Path) -> None:
    """The one that is there is lost, and there is one of something else."""
    shutil.rmtree(table / "_ingest")
    other = table / "_ingest" / "another" / "offsets"
    other.mkdir(parents=True)
    (other / "0").write_text("no offsets")


def test_what_is_there_is_stored_once(spark: SparkSession, runs: Runs) -> None:
    """A second run stores what came since, and a third nothing: the table says where to go on,
    whatever is left of the folder that Spark keeps."""
    assert runs.stored == [50 + len(ODD), 5 + 1, 0]
    counts = runs.scene.counts(spark)
    assert counts == {"retry-5s": 40, "dlq": 15, "retry-25s": len(ODD), "retry-125s": 1}


def test_odd_records_are_stored(spark: SparkSession, runs: Runs) -> None:
    """10 MB, 500 headers, no UTF-8, times at the ends of what can be told, names as long as day."""
    rows = runs.rows(spark, "retry-25s")
    assert [row["payload"] for row in rows] == [value for value, _ in ODD]
    assert rows[0]["payload_bytes"] == len(LARGE)
    assert len(rows[1]["headers"]) == 500
    assert rows[2]["unreadable"] == ["ackfloor.handler"]
    assert rows[2]["headers"] == [("", b"\xff")]
    assert {row["group"] for row in rows} == {runs.scene.group}
    assert [str(row["day"]) for row in rows[3:5]] == ["0001-01-02", "9999-12-31"]
    assert [row["foreign"] for row in rows[4:]] == [[], ["spring", "connect"], ["kafka-dlq"]]
    assert {row["stage"] for row in rows} == {"retry"}


def test_what_is_taken_away_is_in_no_file(spark: SparkSession, runs: Runs) -> None:
    """Neither values nor keys, headers or messages hold it."""
    (row,) = runs.rows(spark, "retry-125s")
    assert row["payload"] == b'{"card": "***", "email": "***"}'
    assert (row["key"], row["error_message"]) == (b"***", "card ***")
    assert row["headers"] == [("auth", b"***")]


def test_a_topic_that_comes_later_is_read_and_one_that_goes_is_let_go(
    spark: SparkSession, scene: Scene
) -> None:
    """A running stream notices both, and a topic made anew under its old name. Onlookers hear of
    each stream that was begun anew for it."""
    scene.create("retry-5s", "dlq")
    scene.produce("retry-5s", 6)
    with scene.running(spark) as work:
        scene.until(lambda: work.stored.records == 6)
        scene.create("retry-25s")
        scene.produce("retry-25s", 4)
        scene.until(lambda: work.stored.records == 10)
        scene.delete("retry-5s")
        scene.produce("dlq", 2)
        scene.until(lambda: work.stored.records == 12)
        scene.delete("retry-25s")
        scene.create("retry-25s")
        scene.produce("retry-25s", 9)
        scene.until(lambda: work.stored.records == 21)
    assert scene.counts(spark) == {"retry-5s": 6, "dlq": 2, "retry-25s": 13}
    begun_anew = sum(line.startswith("begins anew") for line in scene.told)
    assert [type(error) for error in scene.noted.failures] == [StreamBroken] * begun_anew
    assert begun_anew > 0


def test_the_one_that_began_last_writes(spark: SparkSession, scene: Scene) -> None:
    """The other one stops with a sentence, and nothing is there twice."""
    scene.create("dlq")
    scene.produce("dlq", 6)

    def displaced() -> None:
        with scene.running(spark) as work:
            scene.until(lambda: work.stored.records == 6)
            scene.ingest(spark)
            scene.produce("dlq", 4)
            scene.until(lambda: scene.ended)

    with pytest.raises(AnotherIngest, match="another ingest"):
        displaced()
    scene.ingest(spark)
    assert scene.counts(spark) == {"dlq": 10}


def test_what_retention_took_is_told(spark: SparkSession, scene: Scene) -> None:
    """How much, and where; the rest is stored."""
    scene.create("dlq", partitions=1)
    scene.produce("dlq", 5)
    scene.ingest(spark)
    scene.produce("dlq", 10)
    before = TopicPartition(scene.topic("dlq"), 0, 12)
    for done in scene.admin.delete_records([before]).values():
        done.result(60)
    assert scene.ingest(spark).stored.gone == 7
    assert any("/0: 7 offsets from 5 on are gone" in line for line in scene.told)
    assert scene.counts(spark) == {"dlq": 8}


def test_retention_that_overtakes_a_running_stream_is_told(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins anew behind what is gone, and counts it."""
    scene.create("dlq", partitions=1)
    scene.produce("dlq", 5)
    stored, overtaken, append = Event(), Event(), store.append

    def slow(rows: DataFrame, table: str) -> None:
        append(rows, table)
        stored.set()
        assert overtaken.wait(240)

    monkeypatch.setattr(store, "append", slow)
    with scene.running(spark) as work:
        scene.until(stored.is_set)
        scene.produce("dlq", 10)
        before = TopicPartition(scene.topic("dlq"), 0, 12)
        for done in scene.admin.delete_records([before]).values():
            done.result(60)
        overtaken.set()
        scene.until(lambda: work.stored.records == 8)
        assert work.stored.gone == 7
    assert any("/0: 7 offsets from 5 on are gone" in line for line in scene.told)
    assert [type(error) for error in scene.noted.failures] == [StreamBroken]
    assert scene.counts(spark) == {"dlq": 8}


def test_a_table_of_an_earlier_release_is_read_and_gets_the_columns_that_it_lacks(
    spark: SparkSession, scene: Scene
) -> None:
    """In the old rows a new column is null; the next ingest goes on where they end."""
    scene.create("dlq")
    scene.produce("dlq", 3)
    scene.ingest(spark)
    earlier = scene.earlier(spark, "idempotency_key", "attempt")
    lacking = store.read_failures(spark, earlier).select("idempotency_key", "attempt")
    assert [tuple(row) for row in lacking.collect()] == [(None, None)] * 3
    scene.produce("dlq", 2)
    assert scene.ingest(spark, table=earlier).stored.records == 2
    assert {each.name for each in FAILURE} == set(spark.read.format("delta").load(earlier).columns)
    found = store.read_failures(spark, earlier).select("attempt").collect()
    assert sum(row["attempt"] is not None for row in found) == 2


def test_a_folder_of_something_else_is_refused(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    """Other files, another Delta table, another version: each by its own sentence, code 2."""
    scene.create("dlq")
    files, foreign, newer = (str(tmp_path / name) for name in ("files", "foreign", "newer"))
    spark.range(1).write.parquet(files)
    spark.range(1).write.format("delta").save(foreign)
    store.open_table(spark, newer)
    spark.sql(f"ALTER TABLE delta.`{newer}` SET TBLPROPERTIES ('ackfloor.table_version' = '9')")
    for table, why in (
        (files, "holds files that are no table"),
        (foreign, "not one of failures"),
        (newer, "version 9"),
    ):
        with pytest.raises(TableRefused, match=why) as caught:
            scene.ingest(spark, table=table)
        assert caught.value.exit_code == 2


def test_a_broker_that_is_away_is_a_sentence(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a single run it is the end."""
    monkeypatch.setattr(io, "CONNECT_TIMEOUT_S", 0.5)
    with pytest.raises(KafkaUnreachable, match="no Kafka broker answered"):
        scene.ingest(spark, kafka=kafka_options("localhost:9"))


def test_a_group_without_topics_is_told(spark: SparkSession, scene: Scene) -> None:
    """A single run would store nothing, and for ever."""
    with pytest.raises(NoTopics, match=re.escape(re.escape(scene.group))):
        scene.ingest(spark)
