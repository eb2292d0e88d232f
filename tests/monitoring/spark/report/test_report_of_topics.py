"""From a real broker to the report: topics, ingest, table, commits, figures."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import NothingToReport, TableRefused
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from benchmarks.failures import produce
from benchmarks.failures.month import Month
from benchmarks.failures.rows import write_parquet
from tests.framework.kafka.wire import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
]

NOW = datetime(2026, 11, 1, tzinfo=UTC)
GROUP = "mail"


def make_topics(servers: str, names: set[str]) -> None:
    """The topics of the group, of as few partitions as hold anything here."""
    config = {"retention.ms": "-1"}  # the month is over
    wanted = [NewTopic(name, 2, 1, config=config) for name in names]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(wanted).values():
        made.result(60)


def test_what_kafka_holds_is_what_is_reported(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """The report on ingested topics and real commits is that on the generated rows and commits."""
    month = Month(900, seed=8)
    # Of two partitions of each topic: Spark takes its time for each one that holds anything.
    records = [each for each in month if each.envelope.group == GROUP and each.partition < 2]
    commits = [each for each in month.commits() if each.group == GROUP and each.partition < 2]
    make_topics(bootstrap_servers, {each.topic for each in [*records, *commits]})
    assert produce.produce(bootstrap_servers, records) == len(records)
    produce.commit(bootstrap_servers, commits)
    kafka = kafka_options(bootstrap_servers)
    table = str(tmp_path / "failures")
    plan = IngestPlan(table, kafka, io.group_pattern(GROUP), once=True)
    assert Ingest(spark, plan).run().records == len(records)

    found = failure_history(
        spark, table, group=GROUP, since=Since(), clients=options(bootstrap_servers), made_at=NOW
    )
    write_parquet(records, tmp_path / "rows")
    expected = build_report(
        spark.read.parquet(str(tmp_path / "rows")),
        lambda _: [each.settled() for each in commits],
        table=table,
        since=Since(),
        made_at=NOW,
    )
    for name in found.__slots__:
        assert getattr(found, name) == getattr(expected, name), name
    assert found.totals.hops > 0
    assert min(found.totals.recovered, found.totals.dead) > 0

    with pytest.raises(NothingToReport, match=r"no failure of group 'post'; it has mail"):
        failure_history(spark, table, group="post", since=Since(), clients=None, made_at=NOW)
    with pytest.raises(TableRefused, match="ackfloor spark ingest"):
        failure_history(spark, f"{table}-not", group=None, since=Since(), clients=None, made_at=NOW)
