"""The audit with a broker: commits and dispositions are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

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


class Ingested(NamedTuple):
    """A group whose replays are in a table, and where that is."""

    stage: Stage
    table: str


@pytest.fixture(scope="module")
def ingested(
    bootstrap_servers: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Ingested:
    """Four dead letters and their replays, stored by an ingest that was killed and one after it."""
    stage = Stage(bootstrap_servers)
    stage.died = Envelope(stage.source, 0, group=stage.group, handler="bill", attempt=1)
    stage.bury([(None, b"v", [])] * 4)
    assert stage.job().run(stage.everything()).sent == 4
    table = str(tmp_path_factory.mktemp("audited") / "failures")
    plan = IngestPlan(table, kafka_options(stage.servers), io.group_pattern(stage.group), once=True)
    with pytest.raises(ReadFailed, match="killed"):
        Ingest(spark, replace(plan, at_most=4), observer=Killed()).run()
    assert 0 < store.read_failures(spark, table).count() < 8, "not killed in the middle"
    Ingest(spark, plan).run()
    return Ingested(stage, table)


@pytest.fixture
def audit(
    ingested: Ingested, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`ackfloor spark audit` of the group and its table, in this session."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("ackfloor_monitoring.spark.setup.session.spark_session", session)
    given = ["audit", "--table", ingested.table, "--group", ingested.stage.group]
    given += ["--bootstrap-servers", ingested.stage.servers]

    def run(*more: str) -> Result:
        return CliRunner().invoke(spark_app, [*given, *more], env={"COLUMNS": "300"})

    return run


def committed(stage: Stage, unread: int = 0) -> TopicPartition:
    """Let the group commit all replays but the last of partition 0; where the commit ends there."""
    ends = {p: sum(m.partition() == p for m in stage.read(stage.tier)) for p in (0, 1)}
    ends[0] -= unread
    positions = [TopicPartition(stage.tier, p, end) for p, end in ends.items()]
    consumer = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    return positions[0]


@pytest.mark.parametrize("grace", [(), ("--grace", "0")], ids=["five minutes", "none"])
def test_replays_that_are_settled_and_noted_are_in_order(
    ingested: Ingested, audit: Callable[..., Result], grace: tuple[str, ...]
) -> None:
    """Also those redriven less than the grace before the ingest: nobody redrives them again."""
    committed(ingested.stage)
    told = audit(*grace, "-o", "json")
    assert (told.exception, told.exit_code) == (None, 0)
    answer = json.loads(told.stdout)
    assert answer.pop("ingested_s_ago") >= 0
    assert answer == {
        "records": 8, "counts": {}, "findings": [], "left_out": [], "messages": 4,
    }  # fmt: skip


def test_one_that_waits_too_long_is_overdue(
    ingested: Ingested, audit: Callable[..., Result]
) -> None:
    """The group's commits are read: it has not reached the last one."""
    stage = ingested.stage
    open_ = committed(stage, unread=1)
    late = audit("--grace", "0")
    assert late.exit_code == 1
    assert "1  overdue: in a retry topic, past its due time, and not settled" in late.stdout
    assert f"{stage.tier}/{open_.partition}/{open_.offset}" in late.stdout
    assert "since the newest ingest, " in late.stderr
