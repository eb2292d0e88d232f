"""The only reads and writes of the table of failures, a Delta table.

The table is the only record of ingest's progress. A batch is one commit, and within a partition
batches follow each other without a gap; so all up to the highest stored offset was stored, and what
follows was not. The checkpoint is not used, so it can be lost.

One ingest writes at a time: each writes its own name into the table's properties when it starts.
That commit makes every append fail that began before it, and an ingest that finds another name than
its own stops.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.spark_errors import AnotherIngest, StoreFailed, TableRefused
from ackfloor_monitoring.spark.table.columns import (
    FAILURE,
    PARTITIONED_BY,
    TABLE_VERSION,
    TABLE_VERSION_PROPERTY,
)
from ackfloor_monitoring.spark.table.table_frames import remembered, with_derived

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructField

WRITER_PROPERTY = "ackfloor.writer"
CLEANED_PROPERTY = "ackfloor.cleaned"
# The cluster of rows that name none; empty where all do. Without it the table knows one cluster.
_UNNAMED_PROPERTY = "ackfloor.unnamed_cluster"
# Where Spark keeps what it needs while a query runs; Delta leaves such folders alone.
_SCRATCH = "_ingest"
# Where the report keeps what it has counted of each day; it may hold keys and error messages.
KEPT_COUNTS = "_report"
# A file that is smaller may be merged with others; a larger one is not written again.
SMALL_BYTES = 128 * 2**20
_MOST_TRIES = 5
# Of the session that writes: Spark's default times, INT96, and size statistics that nothing here
# reads would take a tenth of an ingest.
_WRITING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "parquet.size.statistics.enabled": "false",
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
}

_PROPERTIES = {
    TABLE_VERSION_PROPERTY: str(TABLE_VERSION),
    # Delta's own way rewrites, after a process' first commit, every folder with two files;
    # `upkeep` waits until there are many.
    "delta.autoOptimize.autoCompact": "false",
    # Minimum and maximum are kept for the columns of searches: identity, group and the times.
    "delta.dataSkippingNumIndexedCols": str(FAILURE.fieldNames().index("ingested_at") + 1),
}


def read_failures(spark: SparkSession, table: str, version: int | None = None) -> DataFrame:
    """The table, with the columns of `FAILURE` and `DERIVED`.

    A column that an earlier release did not know is null until an ingest has added it. What is
    left of a forgotten record, its place, is not among the rows.

    Args:
        version: of which the rows are; None for the newest one, each time that they are read.

    Raises:
        TableRefused: there is none, or it is not ours, or of another version.
    """
    found = _properties(spark, table)
    _check_version(table, found)
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    rows = reader.load(table)
    unknown = {each.name: F.lit(None).cast(each.dataType) for each in _unknown_to(rows)}
    rows = rows.withColumns(unknown)
    if unnamed := found.get(_UNNAMED_PROPERTY):
        rows = rows.withColumn("cluster", F.coalesce("cluster", F.lit(unnamed)))
    return with_derived(rows.where(remembered()))


def unnamed_cluster(spark: SparkSession, table: str) -> str | None:
    """The cluster of rows that name none; "" where all do, None where none does."""
    return _properties(spark, table).get(_UNNAMED_PROPERTY)


def name_unnamed(spark: SparkSession, table: str, cluster: str) -> None:
    """Set what `unnamed_cluster` gives; an append that is under way starts again."""
    _set(spark, table, _UNNAMED_PROPERTY, cluster)


def is_empty(spark: SparkSession, table: str) -> bool:
    """Whether the table has no row."""
    with readable_store_errors(table):
        return spark.read.format("delta").load(table).isEmpty()


def open_table(spark: SparkSession, table: str) -> bool:
    """Create the table where there is none, and check its version where there is one.

    One of an earlier release gets the columns that it lacks. Sets the session's options for
    writing. Returns whether there was none.

    Raises:
        TableRefused: the folder holds something else, or a table of another version.
    """
    prepare_writing(spark)
    try:
        found = _properties(spark, table)
    except TableRefused as error:
        if _has_files(spark, table):
            raise TableRefused(
                f"table {table}: holds files that are no table of failures; name another folder"
            ) from error
        _create(spark, table)
        return True
    _check_version(table, found)
    _add_columns(spark, table)
    return False


def prepare_writing(spark: SparkSession) -> None:
    """Set the session's options for writing the table."""
    for name, value in _WRITING.items():
        spark.conf.set(name, value)


def add_columns(spark: SparkSession, table: str) -> list[str]:
    """Give a table of an earlier release the columns that it lacks; returns their names.

    Raises:
        TableRefused: there is none, or it is not ours, or of another version.
    """
    _check_version(table, _properties(spark, table))
    return _add_columns(spark, table)


def take_over(spark: SparkSession, table: str, writer: str) -> None:
    """Make `writer` the only one that may append; an append that is under way elsewhere fails."""
    _set(spark, table, WRITER_PROPERTY, writer)
    with readable_store_errors(table):
        delete_folder(spark, f"{table}/{_SCRATCH}")


def require_writer(spark: SparkSession, table: str, writer: str) -> None:
    """Raise AnotherIngest where another ingest has taken over."""
    if _properties(spark, table).get(WRITER_PROPERTY) != writer:
        raise AnotherIngest(
            f"table {table}: another ingest has begun to write it, so this one stops; "
            "nothing is lost, let one of them run"
        )


def scratch_folder(table: str, writer: str) -> str:
    """Where this writer's query may keep its checkpoint; unused once it has ended."""
    return f"{table}/{_SCRATCH}/{writer}"


def next_positions(
    spark: SparkSession, table: str, topic_ids: Collection[str]
) -> dict[tuple[str, int], int]:
    """The position after the last stored record, by topic id and partition."""
    with readable_store_errors(table):
        rows = (
            spark.read.format("delta")
            .load(table)
            .where(F.col("topic_id").isin(list(topic_ids)))
            .groupBy("topic_id", "partition")
            .agg(F.max("offset").alias("last"))
            .collect()
        )
    return {(row["topic_id"], row["partition"]): row["last"] + 1 for row in rows}


def created_at(spark: SparkSession, table: str) -> datetime:
    """When the table was made."""
    with readable_store_errors(table):
        (row,) = spark.sql(f"DESCRIBE DETAIL {table_name(table)}").select("createdAt").collect()
    # Python gets the time in its own zone, unmarked.
    return datetime.fromtimestamp(row["createdAt"].timestamp(), UTC)


def append(rows: DataFrame, table: str) -> None:
    """Add the rows in one commit."""
    rows.write.format("delta").mode("append").save(table)


def drop_older(spark: SparkSession, table: str, oldest: date) -> None:
    """Drop the days before `oldest`; whole folders, so nothing is rewritten."""
    with readable_store_errors(table):
        # Delta's DELETE takes no parameters; a date is digits and dashes.
        spark.sql(f"DELETE FROM {table_name(table)} WHERE day < DATE'{oldest.isoformat()}'")  # noqa: S608


def rewrite(spark: SparkSession, statement: str) -> Row:
    """Run a statement that writes rows anew, again where something else has changed the same files
    meanwhile; the first row of its answer.

    Raises:
        StoreFailed: it was so each time.
    """
    for tried in range(1, _MOST_TRIES + 1):
        try:
            return spark.sql(statement).collect()[0]
        except (Py4JJavaError, PySparkException) as error:
            if "DELTA_CONCURRENT" not in str(error) and "DELTA_METADATA_CHANGED" not in str(error):
                raise
            time.sleep(tried)
    raise StoreFailed(f"{_MOST_TRIES} times something else changed the rows; run it again later")


def vacuum(spark: SparkSession, table: str) -> None:
    """Delete the files that no version of the last seven days needs."""
    with readable_store_errors(table):
        spark.sql(f"VACUUM {table_name(table)}")


def clean(spark: SparkSession, table: str, today: date) -> None:
    """`vacuum`, once a day.

    Only between batches: an append that is under way fails, as at a take-over.
    """
    if _properties(spark, table).get(CLEANED_PROPERTY) == today.isoformat():
        return
    vacuum(spark, table)
    _set(spark, table, CLEANED_PROPERTY, today.isoformat())


def files_of(spark: SparkSession, table: str) -> DataFrame:
    """The data files of the newest version, as Delta's log has them: `path`, `partitionValues`,
    `size` in bytes."""
    return _logged(spark, table, "allFiles")


def removed_files(spark: SparkSession, table: str) -> DataFrame:
    """The `path` of each file of older versions, as far back as the newest one still knows them."""
    return _logged(spark, table, "tombstones").select("path")


def day_files(spark: SparkSession, table: str) -> tuple[int, dict[str | None, str]]:
    """The newest version, and of each day of it, ISO 8601, a hash of the names of its data files.

    A file is never changed, so the hash stands for the rows.

    Raises:
        TableRefused: there is no table.
    """
    from pyspark.sql import DataFrame

    snapshot = _newest(spark, table)
    file = F.concat("path", F.coalesce(F.to_json("deletionVector"), F.lit("")))
    files = DataFrame(snapshot.allFiles().toDF(), spark)
    # Sorted here: for Spark that would be a second stage, and the first query waits for it.
    found = files.select(F.col("partitionValues")["day"].alias("day"), file.alias("file")).toArrow()
    hashes: dict[str | None, Any] = defaultdict(hashlib.sha256)
    for row in found.sort_by("file").to_pylist():
        hashes[row["day"]].update(f"{row['file']}\n".encode())
    return snapshot.version(), {day: hashed.hexdigest() for day, hashed in hashes.items()}


def _logged(spark: SparkSession, table: str, what: str) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(getattr(_newest(spark, table), what)().toDF(), spark)


def _newest(spark: SparkSession, table: str) -> Any:
    """No query of Delta's tells of a version's files; this asks its log, as `VACUUM` does.

    Raises:
        TableRefused: there is no table.
    """
    try:
        spark.read.format("delta").load(table)  # the log is read up to its end
    except AnalysisException as error:
        raise TableRefused(
            f"table {table}: no table of failures there; check the path, or make one with "
            "`ackfloor spark ingest`"
        ) from error
    session: Any = spark
    jvm, of_java = session._jvm, session._jsparkSession  # noqa: SLF001
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(of_java, table)
    return log.unsafeVolatileSnapshot()


def is_conflict(failed: StoreFailed) -> bool:
    """Whether a write failed because the table's description was changed meanwhile."""
    return "METADATA_CHANGED" in str(failed) or "PROTOCOL_CHANGED" in str(failed)


@contextmanager
def readable_store_errors(table: str) -> Iterator[None]:
    """Around Spark's use of the table: turns its errors into one sentence."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise StoreFailed(f"table {table}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, of Java's own where it comes from there."""
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return str(message).strip().partition("\n")[0]


def _set(spark: SparkSession, table: str, name: str, value: str) -> None:
    with readable_store_errors(table):
        spark.sql(f"ALTER TABLE {table_name(table)} SET TBLPROPERTIES ('{name}' = '{value}')")


def _unknown_to(rows: DataFrame) -> list[StructField]:
    """The columns that came after the table was made."""
    return [each for each in FAILURE if each.name not in rows.columns]


def _add_columns(spark: SparkSession, table: str) -> list[str]:
    """Give the table what it lacks: only its description changes, no file is rewritten."""
    with readable_store_errors(table):
        if lacking := _unknown_to(spark.read.format("delta").load(table)):
            spark.sql(f"ALTER TABLE {table_name(table)} ADD COLUMNS ({_declared(lacking)})")
    return [each.name for each in lacking]


def _declared(columns: Iterable[StructField]) -> str:
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in columns)


def _create(spark: SparkSession, table: str) -> None:
    given = {**_PROPERTIES, CLEANED_PROPERTY: datetime.now(UTC).date().isoformat()}
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    with readable_store_errors(table):
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table_name(table)} ({_declared(FAILURE)}) USING delta "
            f"PARTITIONED BY ({', '.join(f'`{name}`' for name in PARTITIONED_BY)}) "
            f"TBLPROPERTIES ({properties})"
        )


def _properties(spark: SparkSession, table: str) -> dict[str, str]:
    """Of the newest version; a query for them would take a second to plan."""
    with readable_store_errors(table):
        found = _newest(spark, table).metadata().configuration()
        jvm: Any = spark._jvm  # noqa: SLF001
        return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(found))


def _check_version(table: str, properties: dict[str, str]) -> None:
    found = properties.get(TABLE_VERSION_PROPERTY)
    if found is None:
        raise TableRefused(
            f"table {table}: a Delta table, but not one of failures; name another folder"
        )
    if found != str(TABLE_VERSION):
        raise TableRefused(
            f"table {table}: version {found}, this ackfloor knows version {TABLE_VERSION}; use the "
            "release that made it, or ingest into another folder what Kafka still holds"
        )


def table_name(table: str) -> str:
    """The table's path as SQL names it."""
    return f"delta.`{table.replace('`', '``')}`"


def _has_files(spark: SparkSession, table: str) -> bool:
    files, path = file_system(spark, table)
    return bool(files.exists(path)) and len(files.listStatus(path)) > 0


def delete_folder(spark: SparkSession, folder: str) -> None:
    """Delete it with all that is in it, where it is there."""
    files, path = file_system(spark, folder)
    files.delete(path, True)


def file_system(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    """Hadoop's file system of a path, whichever that is, and the path."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(folder)  # noqa: SLF001
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
    return path.getFileSystem(configuration), path
