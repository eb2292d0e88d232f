"""`python -m benchmarks.ingest`: ingest beside plain rows to Parquet, same records, same session.

The plain query is what Spark does at the least: the Kafka source's columns, headers included,
written to Parquet as they come. See README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ackfloor import RetryPolicy
from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.setup.session import local_session
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from benchmarks.failures import produce
from benchmarks.failures.month import RECORDS_OF_A_MESSAGE, Month

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Way = Callable[["SparkSession", dict[str, str], str], int]


def main() -> None:
    """Measure and print a line for each run, then the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="about how many to produce")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    with open_broker() as broker:
        kafka = kafka_options(broker.bootstrap_servers)
        with local_session("benchmark", cores=given.cores, lasting=True) as spark:
            count = filled(spark, kafka, broker.bootstrap_servers, given.records)
            measure(spark, kafka, count, given.runs)


def filled(spark: SparkSession, kafka: dict[str, str], servers: str, about: int) -> int:
    """How many records there are: a month's that is there already, or else one made now."""
    there = sum(
        end - first
        for topic in io.describe_topics(spark, kafka, io.EVERY_GROUP)
        for first, end in topic.spans.values()
    )
    if there:
        return there
    produce.create_topics(servers, RetryPolicy())
    return produce.produce(servers, Month(round(about / RECORDS_OF_A_MESSAGE)))


def measure(spark: SparkSession, kafka: dict[str, str], count: int, runs: int) -> None:
    """Each way in turn, so that what the machine does beside this meets all."""
    ways: dict[str, Way] = {
        "to Parquet": to_parquet,
        "to Parquet, a file a core": to_few_files,
        "ingest": ingest,
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs):
        for name, way in ways.items():
            folder = tempfile.mkdtemp(prefix="ackfloor-bench-")
            forget_peak(spark)
            began_s, began_cpu_s = time.perf_counter(), cpu_s(spark)
            rows = way(spark, kafka, f"{folder}/made")
            took_s, took_cpu_s = time.perf_counter() - began_s, cpu_s(spark) - began_cpu_s
            assert rows == count, (name, rows, count)
            made = list(Path(folder).rglob("*.parquet"))
            size = sum(each.stat().st_size for each in made)
            rates[name].append(count / took_s)
            costs[name].append(took_cpu_s / count * 1e6)
            print(
                f"{run + 1} {name:<26} {took_s:>6.1f} s {count / took_s:>9,.0f}/s "
                f"{took_cpu_s:>6.1f} s of cores {len(made):>6,} files "
                f"{size / 1e6:>6,.0f} MB, Java {peak_mib(spark):,} MiB",
                flush=True,
            )
            shutil.rmtree(folder)
    rate = {name: statistics.median(each) for name, each in rates.items()}
    cost = {name: statistics.median(each) for name, each in costs.items()}
    for name in ways:
        print(
            f"{name:<28} {rate[name]:>9,.0f}/s, ingest's share {rate['ingest'] / rate[name]:.2f}; "
            f"{cost[name]:,.0f} us of a core a record, {cost[name] / cost['ingest']:.2f}"
        )


def to_parquet(spark: SparkSession, kafka: dict[str, str], folder: str, files: int = 0) -> int:
    """The plain query: a file for each of Kafka's partitions, or so many."""
    topics = io.describe_topics(spark, kafka, io.EVERY_GROUP)
    start = {topic.name: {each: span[0] for each, span in topic.spans.items()} for topic in topics}
    records = io.stream_topics(spark, kafka, io.EVERY_GROUP, start, at_most=2**40)
    query = (
        (records.coalesce(files) if files else records)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}-checkpoint")
        .trigger(availableNow=True)
        .start(folder)
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def to_few_files(spark: SparkSession, kafka: dict[str, str], folder: str) -> int:
    """The plain query with what ingest has over it, fewer files."""
    return to_parquet(spark, kafka, folder, spark.sparkContext.defaultParallelism)


def ingest(spark: SparkSession, kafka: dict[str, str], folder: str) -> int:
    """Ours, as the command does it."""
    work = Ingest(spark, IngestPlan(folder, kafka, io.EVERY_GROUP, once=True), lambda _: None)
    return work.run().records


def forget_peak(spark: SparkSession) -> None:
    """Let Linux measure the most memory of Spark's Java anew."""
    (_java(spark) / "clear_refs").write_text("5")


def cpu_s(spark: SparkSession) -> float:
    """What Spark's Java has used of cores: what the machine does beside it hardly shows in this."""
    fields = (_java(spark) / "stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(spark: SparkSession) -> int:
    """The most memory that Spark's Java has had since then, as Linux counts it."""
    status = (_java(spark) / "status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return round(int(line.split()[1]) / 1024)


def _java(spark: SparkSession) -> Path:
    jvm: Any = spark.sparkContext._jvm
    return Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")


if __name__ == "__main__":
    main()
