"""The audit with a broker: commits and dispositions are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from ackfloor.core.records.envelope import Envelope
from ackfloor_monitoring.spark.cli import spark_app
from tests.monitoring.spark.from_topics import failures_in
from tests.redrive_stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
]


def test_commits_and_dispositions_are_read(
    bootstrap_servers: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays that are settled and noted are in order; one that waits too long is overdue."""
    stage = Stage(bootstrap_servers)
    stage.died = Envelope(stage.source, 0, group=stage.group, handler="bill", attempt=1)
    stage.bury([(None, b"v", [])] * 4)
    assert stage.job().run(stage.everything()).sent == 4
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": stage.group})
    ends = {p: sum(m.partition() == p for m in stage.read(stage.tier)) for p in (0, 1)}
    positions = [TopicPartition(stage.tier, p, end) for p, end in ends.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    rows = failures_in(spark, bootstrap_servers, [stage.tier, stage.dlq]).cache()

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("ackfloor_monitoring.spark.setup.session.spark_session", session)
    monkeypatch.setattr("ackfloor_monitoring.spark.table.store.read_failures", lambda *_: rows)
    given = ["audit", "--table", "t", "--group", stage.group, "--grace", "0"]
    given += ["--bootstrap-servers", bootstrap_servers]
    sound = CliRunner().invoke(spark_app, [*given, "-o", "json"])
    assert (sound.exception, sound.exit_code) == (None, 0)
    nothing = {"records": 8, "counts": {}, "findings": [], "left_out": []}
    assert json.loads(sound.stdout) == nothing
    positions[0].offset -= 1
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()
    late = CliRunner().invoke(spark_app, given, env={"COLUMNS": "300"})
    assert late.exit_code == 1
    assert "1  overdue: in a retry topic, past its due time, and not settled" in late.stdout
    assert f"{stage.tier}/{positions[0].partition}/{positions[0].offset}" in late.stdout
