"""`python -m benchmarks.report --table FOLDER`: how long the report takes after Spark's start.

One report in a session that has done nothing before, as `ackfloor spark report` makes it. See
results/report.md.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime

from ackfloor.redrive import kafka_options
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.setup.session import local_session
from benchmarks.ingest import cpu_s, peak_mib


def main() -> None:
    """Measure one report and print a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--table", required=True, help="that `ackfloor spark ingest` filled")
    parser.add_argument("--bootstrap-servers", help="to read the groups' commits")
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    servers = given.bootstrap_servers
    clients = kafka_options(flags={"kafka.bootstrap_servers": servers}) if servers else None
    with local_session("benchmark", cores=given.cores) as spark:
        began_s, began_java_s, began_python_s = (
            time.perf_counter(),
            cpu_s(spark),
            time.process_time(),
        )
        made = failure_history(
            spark,
            given.table,
            group=None,
            since=Since(),
            clients=clients,
            made_at=datetime.now(UTC),
        )
        print(
            f"{made.totals.records:,} rows: {time.perf_counter() - began_s:.1f} s, "
            f"{cpu_s(spark) - began_java_s:.1f} s of cores in Java and "
            f"{time.process_time() - began_python_s:.1f} in Python, "
            f"Java {peak_mib(spark):,} MiB, load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
