"""The audit with a broker: commits and dispositions are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from ackfloor.core.records.envelope import Envelope
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import ReadFailed
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from ackfloor_monitoring.spark.table.ingest_observer import IngestObserver
from tests.monitoring.spark.from_topics import failures_in
from tests.redrive_stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typer.testing import Result

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
]


class Killed(IngestObserver):
    """Ends an ingest when a batch is stored and nobody knows of it yet, as SIGKILL may."""

    def stored(self, at: datetime) -> None:
        """The first batch is the last."""
        raise ReadFailed("killed")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Where a table of failures may be made."""
    return str(tmp_path / "failures")


@pytest.fixture
def audit(
    bootstrap_servers: str, spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`ackfloor spark audit` of the table, in this session."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("ackfloor_monitoring.spark.setup.session.spark_session", session)
    given = ["audit", "--table", table, "--bootstrap-servers", bootstrap_servers]

    def run(*more: str) -> Result:
        return CliRunner().invoke(spark_app, [*given, *more], env={"COLUMNS": "300"})

    return run


def redriven(servers: str) -> Stage:
    """Four dead letters and their replays, which the group has handled."""
    stage = Stage(servers)
    stage.died = Envelope(stage.source, 0, group=stage.group, handler="bill", attempt=1)
    stage.bury([(None, b"v", [])] * 4)
    assert stage.job().run(stage.everything()).sent == 4
    return stage


def committed(stage: Stage, unread: int = 0) -> TopicPartition:
    """Let the group commit all replays but the last of partition 0; where the commit ends there."""
    ends = {p: sum(m.partition() == p for m in stage.read(stage.tier)) for p in (0, 1)}
    ends[0] -= unread
    positions = [TopicPartition(stage.tier, p, end) for p, end in ends.items()]
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    return positions[0]


def test_after_a_killed_ingest_and_a_resumed_one_young_replays_are_in_order(
    spark: SparkSession, table: str, audit: Callable[..., Result], bootstrap_servers: str
) -> None:
    """Redriven less than the grace before the ingest: nobody is told to redrive them again."""
    stage = redriven(bootstrap_servers)
    committed(stage)
    plan = IngestPlan(table, kafka_options(stage.servers), io.group_pattern(stage.group), once=True)
    with pytest.raises(ReadFailed, match="killed"):
        Ingest(spark, replace(plan, at_most=4), observer=Killed()).run()
    assert 0 < store.read_failures(spark, table).count() < 8, "not killed in the middle"
    Ingest(spark, plan).run()
    told = audit("--group", stage.group, "-o", "json")
    assert (told.exception, told.exit_code) == (None, 0)
    answer = json.loads(told.stdout)
    assert 0 <= answer.pop("ingested_s_ago") < 300
    assert answer == {"records": 8, "counts": {}, "findings": [], "left_out": []}


def test_commits_and_dispositions_are_read(
    bootstrap_servers: str,
    spark: SparkSession,
    audit: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replays that are settled and noted are in order; one that waits too long is overdue."""
    stage = redriven(bootstrap_servers)
    committed(stage)
    rows = failures_in(spark, bootstrap_servers, [stage.tier, stage.dlq]).cache()
    monkeypatch.setattr("ackfloor_monitoring.spark.table.store.read_failures", lambda *_: rows)
    sound = audit("--group", stage.group, "--grace", "0", "-o", "json")
    assert (sound.exception, sound.exit_code) == (None, 0)
    answer = json.loads(sound.stdout)
    del answer["ingested_s_ago"]
    assert answer == {"records": 8, "counts": {}, "findings": [], "left_out": []}
    open_ = committed(stage, unread=1)
    late = audit("--group", stage.group, "--grace", "0")
    assert late.exit_code == 1
    assert "1  overdue: in a retry topic, past its due time, and not settled" in late.stdout
    assert f"{stage.tier}/{open_.partition}/{open_.offset}" in late.stdout
    assert "since the newest ingest, " in late.stderr
