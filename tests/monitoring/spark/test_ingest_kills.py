"""Killed in the middle, again and again, ingest still stores every record once.

INGEST_KILLS=100 for the proof: a third right after a commit, a third while files are written, a
third at random instants. Five kills in a million records of a month, best on a broker of its own:

    INGEST_KILLS=5 INGEST_RECORDS=1000000 pytest --log-cli-level INFO <this file>
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store
from benchmarks.ingest import filled
from tests.monitoring.spark.interpreted import defaults_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.monitoring.spark.scene import Scene

KILLS = int(os.environ.get("INGEST_KILLS", "2"))
#: Of a month, made unless the broker has one; 0: a few of three days.
RECORDS = int(os.environ.get("INGEST_RECORDS", "0"))
_FEW = 3_000
_PATIENCE_S = 600 + RECORDS // 500
MOMENTS = ("after a commit", "files half written", "at random")
_log = logging.getLogger(__name__)
#: On a busy machine a broker that is well may answer later than a user wants to wait for it.
RUN = """
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.table import kafka_reads
kafka_reads.CONNECT_TIMEOUT_S = 300.0
spark_app()
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.e2e,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(_PATIENCE_S * (KILLS + 2)),
]


class Span(NamedTuple):
    """A partition: its first offset and its last one, how many offsets, and in how many rows."""

    first: int
    last: int
    offsets: int
    rows: int


def test_kills_in_the_middle_double_and_lose_nothing(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    """SIGKILL for Python and Java while a batch is stored and not yet told, or half written."""
    total = produced(spark, scene)
    # Small ones, so that there is always a next one to be killed in.
    batch, table = max(1, total // (5 * (KILLS + 1))), Path(scene.table)
    store.open_table(spark, scene.table)
    quick = defaults_in(tmp_path / "spark")
    random, took_s = Random(KILLS), 0.0
    for kill in range(KILLS):
        began_s = time.monotonic()
        with started(scene, tmp_path / "told", batch, quick) as run:
            if kill % 3 == 2:
                time.sleep(random.uniform(0.0, 1.5 * took_s))
            else:
                run.until(just_stored(table))
                took_s = time.monotonic() - began_s
            if kill % 3 == 1:
                run.until(half_written(table))
            ran_s = time.monotonic() - began_s
        rows = store.read_failures(spark, scene.table).count()
        assert 0 < rows < total, "not killed in the middle"
        unnamed = len(files(table) - named(table))
        _log.info(
            "kill %d, %s, %.1f s after its start: %d of %d records stored, %d files in no version",
            kill + 1, MOMENTS[kill % 3], ran_s, rows, total, unnamed,
        )  # fmt: skip
    # What comes after is one more start, wherever: it knows the table and nothing else.
    scene.ingest(spark, pattern=pattern(scene), at_most=max(batch, total // 2))
    _log.info("files of batches that came to nothing: %d", len(files(table) - named(table)))
    in_kafka = spans_in_kafka(spark, scene)
    assert spans_stored(spark, scene) == in_kafka
    assert sum(span.rows for span in in_kafka.values()) == total


def produced(spark: SparkSession, scene: Scene) -> int:
    """Fill the topics; how many records that are."""
    if RECORDS:
        kafka = kafka_options(scene.bootstrap_servers)
        return filled(spark, kafka, scene.bootstrap_servers, RECORDS)
    scene.create("retry-5s", "dlq")
    for ending in ("retry-5s", "dlq"):
        scene.produce(ending, _FEW // 2, apart_ms=3 * 86_400_000 // _FEW)
    return _FEW


class Run(NamedTuple):
    """A command that runs, and where it tells what it does."""

    process: subprocess.Popen[bytes]
    told: Path

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for it while the command runs."""
        end = time.monotonic() + _PATIENCE_S
        while not reached():
            assert self.process.poll() is None, self.told.read_text()
            assert time.monotonic() < end, self.told.read_text()
            time.sleep(0.002)


def pattern(scene: Scene) -> str:
    """Of the topics that are ingested."""
    return io.EVERY_GROUP if RECORDS else io.group_pattern(scene.group)


@contextmanager
def started(scene: Scene, told: Path, batch: int, quick: dict[str, str]) -> Iterator[Run]:
    """The command in a process group of its own, with Java in it; killed at the end."""
    options = ["--table", scene.table, "--once", "--max-records", str(batch)]
    options += ["--bootstrap-servers", scene.bootstrap_servers]
    options += [] if RECORDS else ["--group", scene.group]
    with told.open("wb") as errors:
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, "ingest", *options],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | quick,
            start_new_session=True,
        )
    try:
        yield Run(run, told)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)


def half_written(table: Path) -> Callable[[], bool]:
    """A moment at which there are files that no commit names."""
    before = files(table)
    return lambda: bool(files(table) - before - named(table))


def just_stored(table: Path) -> Callable[[], bool]:
    """The moment of the next commit of rows, which no checkpoint knows of yet."""
    before = named(table)
    return lambda: bool(named(table) - before)


def files(table: Path) -> set[str]:
    """The data files that are there, committed or not."""
    return {each.name for each in table.glob("day=*/group=*/*.parquet")}


def named(table: Path) -> set[str]:
    """Those that a version of the table has."""
    return set().union(*map(added, (table / "_delta_log").glob("*.json")))


@cache
def added(commit: Path) -> frozenset[str]:
    """The files that a commit adds; it is there whole, and never changes."""
    actions = [json.loads(line).get("add") for line in commit.read_text("utf-8").splitlines()]
    return frozenset(add["path"].rpartition("/")[2] for add in actions if add)


def spans_in_kafka(spark: SparkSession, scene: Scene) -> dict[tuple[str, int], Span]:
    """What there is, by topic id and partition."""
    kafka = kafka_options(scene.bootstrap_servers)
    return {
        (topic.id, partition): Span(first, end - 1, end - first, end - first)
        for topic in io.describe_topics(spark, kafka, pattern(scene))
        for partition, (first, end) in topic.spans.items()
        if end > first
    }


def spans_stored(spark: SparkSession, scene: Scene) -> dict[tuple[str, int], Span]:
    """The same of the table."""
    rows = (
        store.read_failures(spark, scene.table)
        .groupBy("topic_id", "partition")
        .agg(F.min("offset"), F.max("offset"), F.count_distinct("offset"), F.count("*"))
        .collect()
    )
    return {(row[0], row[1]): Span(*row[2:]) for row in rows}
