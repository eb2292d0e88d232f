"""The same commands on a real standalone cluster, with a worker killed in between."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ackfloor_monitoring.spark.setup.spark_jars import spark_jars
from ackfloor_monitoring.spark.table import store
from tests.monitoring.spark.cluster import Submitted, standalone
from tests.redrive_stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.e2e,
    pytest.mark.xdist_group("cluster"),  # beside the others: it has its own processes
    pytest.mark.timeout(1800),
]

#: A third program on the cluster; each takes a quarter of a minute of two cores.
REPORT = bool(os.environ.get("CLUSTER_REPORT"))
# What docs/spark.md tells the user to write.
JOB = "from ackfloor.cli.main import main\n\nmain()\n"


def test_the_commands_run_on_a_cluster_that_loses_a_worker(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Nothing is lost or doubled, and nothing but `spark-submit` knows of the cluster.

    Ingest runs through it all: before the kill, after it, and while the other commands work.
    """
    stage, table = Stage(bootstrap_servers), str(tmp_path / "failures")
    letters = [(b"k", b"v", [("own", b"1")])]
    job = tmp_path / "job.py"
    job.write_text(JOB)
    jars = ",".join(map(str, spark_jars()))
    brokers = ["--bootstrap-servers", bootstrap_servers]
    stage.bury(letters * 40)
    with standalone(tmp_path, workers=2) as cluster:

        def ackfloor(command: str, *options: str) -> Submitted:
            """With one executor, which is a Java process of its own, too."""
            said = ["spark", command, "--table", table, *options]
            return cluster.submit("--jars", jars, job, *said, spark_cores_max="1")

        ingest = ackfloor("ingest", "--group", stage.group, "--every", "500ms", *brokers)
        ingest.until(lambda: stored(ingest) == 40)
        cluster.kill_worker()
        stage.bury(letters * 20)
        ingest.until(lambda: stored(ingest) == 60)
        ackfloor("replay", "--where", "attempt = 7", "--yes", *brokers).succeeded()
        assert stage.sent_once() == 60
        ingest.until(lambda: stored(ingest) == 120)
        if REPORT:
            told = ackfloor("report", "-o", "json", *brokers).succeeded()
            assert re.search(r'"records": 120\b', told), told
        ingest.end()
    rows = store.read_failures(spark, table).groupBy("topic", "topic_id", "partition", "offset")
    found = rows.count().collect()
    assert Counter(row["topic"] for row in found) == {stage.dlq: 60, stage.tier: 60}
    assert {row["count"] for row in found} == {1}


def stored(ingest: Submitted) -> int:
    """How many records it has told of."""
    told = re.findall(r"^stored ([0-9,]+) records in", ingest.told, re.MULTILINE)
    return sum(int(each.replace(",", "")) for each in told)
