"""`python -m benchmarks.scale`: what a record costs ingest and report as the table grows.

Histories of 1, 5 and 20 million failures, each the one before and more, then one more day. Each
step is told with its CPU time, which a busy machine hardly changes, and beside ingest a plain copy
of the same records. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ackfloor import RetryPolicy
from ackfloor.redrive import kafka_options as client_options
from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.setup.session import local_session
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from benchmarks.failures import produce
from benchmarks.failures.month import RECORDS_OF_A_MESSAGE, Month, Parked
from benchmarks.failures.scenario import HOURS
from benchmarks.ingest import cpu_s, peak_mib

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000
#: Months have their offsets in common, so each has topics of its own.
NAMES = "abcdefgh"
#: A plain copy of more records costs as much a record.
COPIED_MOST = 5 * MILLION
Told = dict[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What a history grows by: a month, or the last day of one.

    Attributes:
        name: in the names of its topics.
        records: about how many a month would have.
    """

    name: str
    records: int
    seed: int
    from_hour: float = 0.0

    @property
    def pattern(self) -> str:
        """Of its retry and dead-letter topics, anchored."""
        return rf"^.+-{self.name}--.+--(retry-[0-9]+[a-z]+|dlq)$"

    def named(self, topic: str) -> str:
        """A topic's name here."""
        source, mark, rest = topic.partition("--")
        return f"{source}-{self.name}{mark}{rest}"

    def produced(self, servers: str) -> int:
        """Write it, and commit what is settled at its end; returns how many records."""
        messages = round(self.records / RECORDS_OF_A_MESSAGE)
        month = Month(messages, self.seed, from_hour=self.from_hour)
        produce.create_topics(servers, RetryPolicy(), self.named)
        count = produce.produce(servers, self._renamed(month))
        produce.commit(servers, month.commits(), self.named)
        return count

    def _renamed(self, month: Month) -> Iterator[Parked]:
        for parked in month:
            envelope = parked.envelope
            origin = self.named(envelope.origin_topic or "")
            yield parked._replace(
                topic=self.named(parked.topic), envelope=envelope._replace(origin_topic=origin)
            )


def main() -> None:
    """Grow a history and tell what each step takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 5, 20], help="ascending")
    parser.add_argument(
        "--folder",
        type=Path,
        help="for the table and what was measured; kept. On the same broker it goes on there",
    )
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="ackfloor-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    with open_broker() as broker:
        grow(broker.bootstrap_servers, folder, [round(each * MILLION) for each in given.millions])
    if not given.folder:
        shutil.rmtree(folder)


def grow(servers: str, folder: Path, sizes: list[int]) -> None:
    """Each part in turn: written, copied, ingested, reported; at last one more day."""
    before = 0
    done = folder / "steps.json"
    steps: dict[str, Told] = json.loads(done.read_text("utf-8")) if done.exists() else {}

    def step(name: str, work: Callable[..., Told], *given: object) -> None:
        if name in steps:
            return
        # Java is begun anew for each, and its compilers with it.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            told = process.submit(work, *given).result()
        steps[name] = told
        done.write_text(json.dumps(steps, indent=1) + "\n", "utf-8")
        figures = ", ".join(f"{key} {value:,.1f}" for key, value in told.items())
        print(f"{name}: {figures}; load {os.getloadavg()[0]:.1f}", flush=True)

    parts = []
    for number, size in enumerate(sizes):
        parts.append(Part(NAMES[number], size - before, number + 1))
        before = size
    parts.append(Part("day", parts[-1].records, len(parts) + 1, from_hour=HOURS - 24))
    table = str(folder / "failures")
    for part in parts:
        step(f"{part.name} written", written, part, servers)
        if part.records <= COPIED_MOST:
            step(f"{part.name} copied", copied, part, servers)
        step(f"{part.name} ingested", ingested, part, servers, table)
        step(f"report with {part.name}", reported, servers, table)


def written(part: Part, servers: str) -> Told:
    """The records in Kafka."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    count = part.produced(servers)
    took_s = time.perf_counter() - began_s
    return {"records": count, "s": took_s, "s of cores": time.process_time() - began_cpu_s}


def copied(part: Part, servers: str) -> Told:
    """A plain copy to Parquet, a file a core."""

    def copy(spark: SparkSession) -> int:
        kafka = kafka_options(servers)
        topics = io.describe_topics(spark, kafka, part.pattern)
        start = {t.name: {each: span[0] for each, span in t.spans.items()} for t in topics}
        folder = tempfile.mkdtemp(prefix="ackfloor-scale-")
        query = (
            io.stream_topics(spark, kafka, part.pattern, start, at_most=2**40)
            .coalesce(spark.sparkContext.defaultParallelism)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/copy")
        )
        query.awaitTermination()
        shutil.rmtree(folder)
        return sum(progress.numInputRows for progress in query.recentProgress)

    return _measured(copy, lasting=True)


def ingested(part: Part, servers: str, table: str) -> Told:
    """Into the table, as the command does it that runs for long."""

    def ingest(spark: SparkSession) -> int:
        plan = IngestPlan(table, kafka_options(servers), part.pattern, once=True)
        return Ingest(spark, plan, lambda _: None).run().records

    return _measured(ingest, lasting=True)


def reported(servers: str, table: str) -> Told:
    """The report on all that is there."""

    def report(spark: SparkSession) -> int:
        clients = client_options(flags={"kafka.bootstrap_servers": servers})
        made_at = datetime.now(UTC)
        made = failure_history(
            spark, table, group=None, since=Since(), clients=clients, made_at=made_at
        )
        return made.totals.records

    return _measured(report, lasting=False)


def _measured(work: Callable[[Any], int], *, lasting: bool) -> Told:
    """From the session's start."""
    with local_session("benchmark", lasting=lasting) as spark:
        began_s, began_cpu_s = time.perf_counter(), cpu_s(spark)
        records = work(spark)
        took_s, took_cpu_s = time.perf_counter() - began_s, cpu_s(spark) - began_cpu_s
        return {
            "records": records,
            "s": took_s,
            "s of cores": took_cpu_s,
            "us of a core a record": took_cpu_s / records * 1e6,
            "Java MiB": peak_mib(spark),
        }


if __name__ == "__main__":
    main()
