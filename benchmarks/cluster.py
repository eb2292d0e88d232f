"""`python -m benchmarks.cluster`: the same job on a standalone cluster of one worker, and of two.

Ingest of a month and the report on it, as `spark-submit` runs them on each cluster in turn. A
worker has one core. See README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ackfloor import RetryPolicy
from ackfloor.testing.local_kafka.bootstrap import open_broker
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars
from benchmarks.failures import produce
from benchmarks.failures.month import RECORDS_OF_A_MESSAGE, Month
from tests.monitoring.spark.cluster import Cluster, standalone

# What docs/spark.md tells the user to write.
JOB = "from ackfloor.cli.main import main\n\nmain()\n"
WORKERS = (1, 2)
CONF = {"spark.executor.memory": "768m"}


class Took(NamedTuple):
    """Of one program: time from submission to its end, and what all its processes used of cores."""

    s: float
    cores_s: float


def main() -> None:
    """Measure, and print a line for each run and the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="about how many to produce")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with open_broker() as broker, tempfile.TemporaryDirectory(prefix="ackfloor-bench-") as folder:
        month = Month(round(given.records / RECORDS_OF_A_MESSAGE))
        produce.create_topics(broker.bootstrap_servers, RetryPolicy())
        records = produce.produce(broker.bootstrap_servers, month)
        produce.commit(broker.bootstrap_servers, month.commits())
        print(f"{records:,} records", flush=True)
        measure(Path(folder), broker.bootstrap_servers, records, given.rounds)


def measure(folder: Path, servers: str, records: int, rounds: int) -> None:
    """Each cluster in turn, and in the next round in the other order."""
    took: dict[tuple[str, int], list[Took]] = {}
    for number in range(rounds):
        for workers in WORKERS if number % 2 == 0 else reversed(WORKERS):
            place = folder / f"{number}-{workers}"
            place.mkdir()
            for name, each in one_round(place, servers, workers, records).items():
                took.setdefault((name, workers), []).append(each)
                print(
                    f"{number + 1} {name:<7} {workers} workers {each.s:>6.1f} s "
                    f"{each.cores_s:>6.1f} s of cores, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    for (name, workers), rows in took.items():
        seconds, cores = (statistics.median(each) for each in zip(*rows, strict=True))
        print(f"{name:<7} {workers} workers: {seconds:,.1f} s, {cores:,.1f} s of cores")


def one_round(place: Path, servers: str, workers: int, records: int) -> dict[str, Took]:
    """The two programs on a cluster of its own, with a table of its own."""
    job, table = place / "job.py", str(place / "failures")
    job.write_text(JOB)
    brokers = ["--bootstrap-servers", servers]
    with standalone(place, workers, cores=1, conf=CONF) as cluster:
        ingest, stored = ran(cluster, job, ["ingest", "--once", "--table", table, *brokers])
        report, told = ran(cluster, job, ["report", "-o", "json", "--table", table, *brokers])
    assert f"{records:,} records" in stored, stored[-2_000:]
    assert re.search(rf'"records": {records}\b', told), told[-2_000:]
    return {"ingest": ingest, "report": report}


def ran(cluster: Cluster, job: Path, arguments: Sequence[str]) -> tuple[Took, str]:
    """Run one program to its end; what it took, and what it said."""
    began_s, began_cpu_s = time.perf_counter(), cluster.cpu_s() + _ended_cpu_s()
    jars = ",".join(map(str, spark_jars()))
    told = cluster.submit("--jars", jars, job, "spark", *arguments).succeeded()
    took_s = time.perf_counter() - began_s
    return Took(took_s, cluster.cpu_s() + _ended_cpu_s() - began_cpu_s), told


def _ended_cpu_s() -> float:
    """Of processes that this one started and that have ended: drivers, and what they started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
