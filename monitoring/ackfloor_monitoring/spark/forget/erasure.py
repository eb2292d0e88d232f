"""Erasure: rows leave the newest version, then every old file that holds one is deleted.

The log of a Delta table keeps what a DELETE was asked for. So the rows are named by their places:
the condition, which may hold a key, is in no file.

Ingest reads on behind the highest offset of each partition that is in the table. Where that row is
erased, its place stays, and nothing else of it: the record would be stored again. So would one of a
later day than that row, such as one of a wrong clock, when old days go: its place stays as well.

An ingest may run meanwhile. Its appends never conflict with this; a merge of files may, which
then is tried again here or left out there. What it is storing at this moment stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.forget.data_files import (
    OldFile,
    delete_files,
    old_files,
    plain_path,
)
from ackfloor_monitoring.spark.forget.erasure_notes import ErasureNote, write_note
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.columns import FAILURE, FORGOTTEN, IDENTITY, PLACE
from ackfloor_monitoring.spark.table.table_frames import remembered, with_derived

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACES = "ackfloor_forgotten_places"
# Of files that are read at once.
_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Erasure:
    """What is erased, or would be.

    Attributes:
        rows, dead_letters: of the table's newest version.
        messages: that these rows are about, of known origin.
        first, last: the first and the last day of them, ISO 8601; None where there is none.
        old_files: old files that hold such rows as well, and are deleted.
        files_left: files that hold such rows and are in no version: they may belong to a batch
            that is being stored now, and are left for a day.
    """

    rows: int
    messages: int
    dead_letters: int
    first: str | None
    last: str | None
    old_files: int
    files_left: int


def of_key(*keys: bytes) -> Column:
    """The rows of a record's key, also where the rules of redaction stored its hash.

    Args:
        keys: what it may be.
    """
    values = [F.lit(bytearray(key)) for key in keys]
    hashes = [F.substring(F.sha2(value, 256), 1, 16).cast("binary") for value in values]
    return F.col("key").isin(*values, *hashes)


def look(spark: SparkSession, table: str, condition: Column) -> Erasure:
    """What would be erased.

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
    """
    rows = store.read_failures(spark, table).where(condition)
    found = rows.agg(
        F.count("*").alias("rows"),
        F.count_distinct("message").alias("messages"),
        F.count_if(F.col("stage") == "dlq").alias("dead_letters"),
        F.min("day").alias("first"),
        F.max("day").alias("last"),
    ).collect()[0]
    held = _holding(spark, table, condition)
    return Erasure(
        rows=found["rows"],
        messages=found["messages"],
        dead_letters=found["dead_letters"],
        first=_iso(found["first"]),
        last=_iso(found["last"]),
        old_files=sum(each.deletable for each in held),
        files_left=sum(not each.deletable for each in held),
    )


def _iso(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def erase(
    spark: SparkSession, table: str, condition: Column, expected: Erasure, by: str
) -> Erasure:
    """Erase it. Killed at any moment, it is asked for again and ends.

    Args:
        condition: over the columns of the table.
        expected: from `look`.
        by: who asks for it.

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
    """
    store.prepare_writing(spark)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = ErasureNote(now, by, rows=0, messages=0, done=False)
    with store.readable_store_errors(table):
        write_note(spark, table, note)
        rows = _leave_places(spark, table, condition)
        note = replace(note, rows=rows, messages=expected.messages if rows else 0)
        write_note(spark, table, note)
        # After the note: a report that counts meanwhile sees it, and deletes what it has kept.
        store.delete_folder(spark, f"{table}/{store.KEPT_COUNTS}")
        held = _holding(spark, table, condition)
        deleted = delete_files(spark, (each.path for each in held if each.deletable))
        left = sum(not each.deletable for each in held)
        write_note(spark, table, replace(note, done=not left))
    return replace(expected, rows=rows, old_files=deleted, files_left=left)


def _leave_places(spark: SparkSession, table: str, condition: Column) -> int:
    """Erase the rows in one commit, and say how many; of those that ingest would store again the
    place stays."""
    rows = store.read_failures(spark, table).where(condition)
    ends = (
        spark.read.format("delta")
        .load(table)
        .groupBy("topic_id", "partition")
        .agg(F.max("offset").alias("_end"), F.max_by("day", "offset").alias("_end_day"))
    )
    # Once each, where the table has a record twice.
    places = rows.select(*IDENTITY, "day", "group").distinct()
    stays = (F.col("offset") == F.col("_end")) | (F.col("day") > F.col("_end_day"))
    places.join(ends, ["topic_id", "partition"], "left").withColumn(
        "stays", stays
    ).createOrReplaceTempView(_PLACES)
    gone = ", ".join(f"t.`{name}` = NULL" for name in FAILURE.fieldNames() if name not in PLACE)
    same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in (*IDENTITY, "day", "group"))
    statement = (
        f"MERGE INTO {store.table_name(table)} t USING {_PLACES} s ON {same} "
        f"WHEN MATCHED AND s.stays THEN UPDATE SET t.stage = '{FORGOTTEN}', {gone} "
        "WHEN MATCHED THEN DELETE"
    )
    try:
        with _rewriting(spark):
            return int(store.rewrite(spark, statement)["num_affected_rows"])
    finally:
        spark.catalog.dropTempView(_PLACES)


@contextmanager
def _rewriting(spark: SparkSession) -> Iterator[None]:
    """Files are written anew without the rows: a vector beside a file would only hide them."""
    name = "spark.databricks.delta.merge.deletionVectors.persistent"
    before = spark.conf.get(name, None)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def _holding(spark: SparkSession, table: str, condition: Column) -> list[OldFile]:
    """The old files that hold rows which meet the condition, and those that can't be read."""
    files = {each.plain: each for each in old_files(spark, table)}
    held = [each for each in files.values() if not each.whole]
    paths = sorted(each.path for each in files.values() if each.whole)
    for start in range(0, len(paths), _FILES):
        rows = _rows_of(spark, table, paths[start : start + _FILES]).where(condition)
        found = rows.select("_file").distinct().collect()
        held += (files[plain_path(spark, row["_file"])] for row in found)
    return held


def _rows_of(spark: SparkSession, table: str, paths: Sequence[str]) -> DataFrame:
    """The rows of these files as `read_failures` gives them, and `_file`, the file's URI."""
    # One of a merge that is under way elsewhere may be deleted there.
    reader = spark.read.schema(FAILURE).option("basePath", table).option("ignoreMissingFiles", True)
    rows = reader.parquet(*paths).withColumn("_file", F.col("_metadata.file_path"))
    return with_derived(rows.where(remembered()))
