"""The table's data files on the storage, those included that its newest version does not need.

A version of a Delta table names its files. On the storage there are more: those of older versions,
those that a killed batch left, and those of a batch that is being stored at this moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from ackfloor_monitoring.spark.table.columns import PARTITIONED_BY
from ackfloor_monitoring.spark.table.store import file_system, removed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A file that no version names and that is older does not belong to a batch that is being stored.
_LONGEST_BATCH_S = 86_400
# Of a Parquet file.
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class OldFile:
    """A data file that the newest version does not need.

    Attributes:
        path: with its file system.
        plain: the same without.
        deletable: nobody will need it: an older version named it, or no batch takes that long.
        whole: else it is being written, or a kill left it; what is in it can't be read.
    """

    path: str
    plain: str
    deletable: bool
    whole: bool


def old_files(spark: SparkSession, table: str) -> list[OldFile]:
    """All of them. What is committed meanwhile is not among them, or is not deletable."""
    # In this order: a file that is listed and committed after that is among the needed ones.
    listed = list(_listed(spark, table))
    newest = spark.read.format("delta").load(table).inputFiles()
    needed = {plain_path(spark, path) for path in newest}
    removed = _removed(spark, table)
    oldest_ms = (time.time() - _LONGEST_BATCH_S) * 1000
    found = []
    for path, plain, written_ms in listed:
        if plain not in needed:
            named = plain in removed
            whole = named or _whole(spark, path)
            found.append(OldFile(path, plain, named or written_ms < oldest_ms, whole))
    return found


def delete_files(spark: SparkSession, paths: Iterable[str]) -> int:
    """Delete them; how many were still there."""
    count = 0
    for path in paths:
        files, found = file_system(spark, path)
        count += bool(files.delete(found, False))
    return count


def plain_path(spark: SparkSession, encoded: str, root: Any = None) -> str:
    """A path without its file system; Delta writes it as a URI, in its log below the table's."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(encoded))
    if root is not None and not path.isAbsolute():
        path = jvm.org.apache.hadoop.fs.Path(root, path)
    return str(path.toUri().getPath())


def _listed(spark: SparkSession, table: str) -> Iterator[tuple[str, str, int]]:
    """The path of each data file, the same without its file system, and when it was written."""
    files, path = file_system(spark, table)
    folders = [path]
    for column in PARTITIONED_BY:
        below = [each.getPath() for folder in folders for each in files.listStatus(folder)]
        folders = [each for each in below if each.getName().startswith(f"{column}=")]
    for folder in folders:
        for status in files.listStatus(folder):
            found = status.getPath()
            if found.getName().endswith(".parquet"):
                yield found.toString(), found.toUri().getPath(), status.getModificationTime()


def _removed(spark: SparkSession, table: str) -> set[str]:
    """The files of older versions, as far back as the newest one still knows them."""
    files, folder = file_system(spark, table)
    root = files.makeQualified(folder)
    removed = removed_files(spark, table)
    return {plain_path(spark, row["path"], root) for row in removed.toLocalIterator()}


def _whole(spark: SparkSession, path: str) -> bool:
    """Whether a file ends as a Parquet file does."""
    files, found = file_system(spark, path)
    try:
        length = files.getFileStatus(found).getLen()
        if length < len(_MAGIC):
            return False
        stream = files.open(found)
        try:
            stream.seek(length - len(_MAGIC))
            return bytes(stream.read() for _ in _MAGIC) == _MAGIC
        finally:
            stream.close()
    except Py4JJavaError:
        return False  # it is gone by now, or still being written
