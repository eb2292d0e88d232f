"""Upkeep of the table's files: old days go, small files become few, files without use are deleted.

Each file of a table has a price for every reader, however small it is, and a batch leaves up to a
file a core in each folder. While a day goes on, its small files are merged when there are many;
when it is over, few are enough. A file that is no longer small is never written again, so a late
record does not make a whole day be written anew.

Nothing here sets a property of the table: that would end an append that is under way. Deleting
whole days and merging files never do. So this may run beside an ingest, which does the same itself
once a day. A file that is merged stays for seven days: who reads an older version is not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.spark_errors import TableRefused
from ackfloor_monitoring.spark.table import store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# So many small files of a folder are worth writing anew; of a day that is over, so many.
MANY_FILES = 50
MANY_OF_A_DAY_THAT_IS_OVER = 5
# Days that one commit merges: killed, this has to merge no more than those again.
_DAYS_AT_ONCE = 30
# Storage that does not keep two programs from writing the same version.
_ONE_WRITER = frozenset({"s3", "s3a", "s3n"})


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is done to the table, or would be.

    Attributes:
        old_days: days that are forgotten, with `old_files`.
        days_to_merge: days of which `small_files` become few.
        dead_files: files that no version of the last seven days needs; they are deleted.
        files, bytes: of the newest version; after it, when it is done.
    """

    old_days: int
    old_files: int
    days_to_merge: int
    small_files: int
    dead_files: int
    files: int
    bytes: int


def look(spark: SparkSession, table: str, today: date, oldest: date | None) -> Upkeep:
    """What would be done.

    Args:
        today: in UTC; days before it are over.
        oldest: the first day that is kept; None for all.

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
    """
    store.read_failures(spark, table)  # refuses what is no table of ours
    with store.readable_store_errors(table):
        folders = _folders(spark, table)
        old = F.lit(False) if oldest is None else F.col("day") < F.lit(oldest)
        merged = _worth_merging(today) & ~old
        found = folders.agg(
            F.count_distinct(F.when(old, F.col("day"))).alias("old_days"),
            _sum("files", old).alias("old_files"),
            F.count_distinct(F.when(merged, F.col("day"))).alias("days_to_merge"),
            _sum("small", merged).alias("small_files"),
            _sum("files").alias("files"),
            _sum("bytes").alias("bytes"),
        ).collect()[0]
        dead = spark.sql(f"VACUUM {store.table_name(table)} DRY RUN").count()
    return Upkeep(**found.asDict(), dead_files=dead)


def keep_up(spark: SparkSession, table: str, today: date, oldest: date | None) -> Upkeep:
    """Do it, beside an ingest or alone. Killed at any moment, it is started again and ends.

    Args:
        today: in UTC; days before it are over.
        oldest: the first day that is kept; None for all.

    Raises:
        TableRefused, StoreFailed: the table cannot be used, or its storage lets one program write.
    """
    planned = look(spark, table, today, oldest)
    _refuse_one_writer(spark, table)
    store.prepare_writing(spark)
    if planned.old_files and oldest is not None:
        store.drop_older(spark, table, oldest)
    merge_files(spark, table, today)
    if planned.dead_files:
        store.vacuum(spark, table)
    with store.readable_store_errors(table):
        left = _folders(spark, table).agg(_sum("files"), _sum("bytes")).collect()[0]
    return Upkeep(
        planned.old_days, planned.old_files, planned.days_to_merge, planned.small_files,
        planned.dead_files, *left,
    )  # fmt: skip


def merge_files(spark: SparkSession, table: str, today: date | None = None) -> None:
    """Make few files of the many small ones that a group has on a day.

    Args:
        today: in UTC: of the days before it, few small files are many; None treats all alike.

    Raises:
        StoreFailed: the table could not be written.
    """
    with store.readable_store_errors(table):
        rows = _folders(spark, table).where(_worth_merging(today)).select("day").distinct()
        days = sorted(row["day"] for row in rows.where("day IS NOT NULL").collect())
        for some in _parts(days):
            named = ", ".join(f"DATE'{day.isoformat()}'" for day in some)
            store.rewrite(spark, f"OPTIMIZE {store.table_name(table)} WHERE day IN ({named})")


def _parts(days: Sequence[date]) -> Iterator[Sequence[date]]:
    for start in range(0, len(days), _DAYS_AT_ONCE):
        yield days[start : start + _DAYS_AT_ONCE]


def _folders(spark: SparkSession, table: str) -> DataFrame:
    """A row for each day and group of the newest version: `files`, `small` ones, `bytes`."""
    values = F.col("partitionValues")
    return (
        store.files_of(spark, table)
        .groupBy(values["day"].try_cast("date").alias("day"), values["group"].alias("group"))
        .agg(
            F.count("*").alias("files"),
            F.count_if(F.col("size") < store.SMALL_BYTES).alias("small"),
            F.sum("size").alias("bytes"),
        )
    )


def _worth_merging(today: date | None) -> Column:
    many = F.col("small") >= MANY_FILES
    if today is None:
        return many
    over = F.col("day") < F.lit(today)
    return many | (over & (F.col("small") >= MANY_OF_A_DAY_THAT_IS_OVER))


def _sum(column: str, where: Column | None = None) -> Column:
    value = F.col(column) if where is None else F.when(where, F.col(column))
    return F.coalesce(F.sum(value), F.lit(0))


def _refuse_one_writer(spark: SparkSession, table: str) -> None:
    """Two programs that write there may each make the same version, and one of them is lost."""
    scheme = store.file_system(spark, table)[0].getUri().getScheme()
    setting = f"spark.delta.logStore.{scheme}.impl"
    if scheme in _ONE_WRITER and spark.conf.get(setting, None) is None:
        raise TableRefused(
            f"table {table}: only one program at a time may write to {scheme}; leave this to "
            "`ackfloor spark ingest`, which does it at its start and once a day, or set "
            f"{setting} to a store for several"
        )
