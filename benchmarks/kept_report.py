"""`python -m benchmarks.kept_report`: a report from kept days beside a long history.

A month of about a million failures is made once and copied with Spark: each copy has offsets, keys
and waits of its own. That is some minutes, where the same through Kafka is hours. The last day of
one copy, or of more, is held back: it is the day that is new. Each report is in a process of its
own, as the command makes it; the commits are made up, so no broker is asked. See
results/report.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as fn

from ackfloor.commits import Settled
from ackfloor.redrive import KafkaOptions
from ackfloor_monitoring.spark.report import job
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.setup.session import local_session
from ackfloor_monitoring.spark.table import store
from benchmarks.failures.month import RECORDS_OF_A_MESSAGE, Month
from benchmarks.failures.rows import write_parquet
from benchmarks.ingest import cpu_s, peak_mib

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APART = 1_000_000_000
_KEYS = 5
_JITTER_MS = 1_000
# Copies that are written at once: Spark holds no more.
_AT_ONCE = 5


def main() -> None:
    """Make what is not there yet, then measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kept_report", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="kept; what is there is taken")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the month, about")
    parser.add_argument("--copies", type=int, default=22)
    parser.add_argument("--of-day", type=int, default=1, help="copies that the new day is of")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--all-rows", action="store_true", help="also without what is kept")
    given = parser.parse_args()
    made = given.folder / "made"
    if not made.exists():
        _alone(make_month, given.folder, given.records)
        _alone(make_table, given.folder, given.copies, given.of_day)
        made.touch()
    steps: list[tuple[str, Callable[..., object], object]] = [
        ("nothing kept yet", reported, True),
        ("nothing changed", reported, True),
        ("nothing changed", reported, True),
        ("a day", added, None),
        ("a day is new", reported, True),
        ("nothing changed", reported, True),
    ]
    if given.all_rows:
        steps.append(("all rows", reported, False))
    for name, step, keep in steps:
        if keep is None:
            _alone(step, given.folder)
            continue
        print(f"{name}: {_alone(step, given.folder, keep, given.copies, given.cores)}", flush=True)


def _alone(work: Callable[..., object], *given: object) -> object:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *given).result()


def make_month(folder: Path, records: int) -> None:
    """The rows, and what is committed at the month's end."""
    month = Month(round(records / RECORDS_OF_A_MESSAGE), 1)
    write_parquet(month, folder / "month")
    commits = [each.settled() for each in month.commits()]
    (folder / "commits.json").write_text(json.dumps(commits), "utf-8")


def make_table(folder: Path, copies: int, of_day: int) -> None:
    """The table without its last day, and that day in a folder beside it."""
    with local_session("benchmark", lasting=True) as spark:
        table = str(folder / "failures")
        store.open_table(spark, table)
        rows = spark.read.parquet(str(folder / "month"))
        last = fn.lit(rows.agg(fn.max("day")).collect()[0][0])
        for first in range(0, copies, _AT_ONCE):
            some = copied(rows, first, min(copies, first + _AT_ONCE))
            some = some.where(fn.col("day") < last).repartition(32, "day", "group")
            store.append(some, table)
        day = copied(rows, copies - of_day, copies).where(fn.col("day") == last)
        day.repartition(4, "day", "group").write.parquet(str(folder / "day"))


def copied(rows: DataFrame, first: int, end: int) -> DataFrame:
    """Copies with these numbers, behind each other in the same partitions."""
    number = fn.explode(fn.array(*(fn.lit(each) for each in range(first, end)))).alias("copy")
    behind = fn.col("copy").cast("long") * _APART
    jitter_ms = fn.pmod(fn.xxhash64("origin_topic", "origin_offset", "copy"), fn.lit(_JITTER_MS))
    key = fn.concat("key", fn.encode(fn.concat(fn.lit("-"), (fn.col("copy") % _KEYS)), "UTF-8"))
    return (
        rows.select("*", number)
        .withColumns(
            {
                "offset": fn.col("offset") + behind,
                "origin_offset": fn.col("origin_offset") + behind,
                "not_before": fn.timestamp_millis(fn.unix_millis("not_before") + jitter_ms),
                "key": key,
            }
        )
        .drop("copy")
    )


def added(folder: Path) -> None:
    """The day that was held back, appended to the table."""
    with local_session("benchmark") as spark:
        store.prepare_writing(spark)
        store.append(spark.read.parquet(str(folder / "day")), str(folder / "failures"))


def reported(folder: Path, keep: bool, copies: int, cores: int) -> str:
    """One report, with what it took from the session's start."""
    commits = committed(folder, copies)
    job.committed_for = lambda _, tiers: commits  # type: ignore[assignment]
    with local_session("benchmark", cores=cores) as spark:
        return _measured(spark, str(folder / "failures"), keep=keep)


def committed(folder: Path, copies: int) -> list[Settled]:
    """Of the last copy what the month had committed, and all of those before it."""
    found = []
    for *names, position, runs, refused in json.loads((folder / "commits.json").read_text()):
        behind = (copies - 1) * _APART
        further = [(start + behind, end + behind) for start, end in runs]
        found.append(Settled(*names, position + behind, further, refused))
    return found


def _measured(spark: SparkSession, table: str, *, keep: bool) -> str:
    began_s, began_python_s, began_java_s = time.perf_counter(), time.process_time(), cpu_s(spark)
    made = job.failure_history(
        spark, table, group=None, since=Since(), clients=cast(KafkaOptions, object()),
        made_at=datetime(2026, 11, 1, tzinfo=UTC), keep=keep,
    )  # fmt: skip
    return (
        f"{made.totals.records:,} rows, {made.days_counted} days counted, {made.days_kept} kept: "
        f"{time.perf_counter() - began_s:.1f} s, {cpu_s(spark) - began_java_s:.1f} s of cores in "
        f"Java and {time.process_time() - began_python_s:.1f} in Python, "
        f"Java {peak_mib(spark):,} MiB, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
