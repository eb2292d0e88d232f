"""Files of a folder in whichever file system, read and written in Python.

What is kept of days is small, and read in every report: a query of Spark's for each would take
longer to plan than all of it takes to read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError

from ackfloor_monitoring.spark.table.store import file_system, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_AT_ONCE = 200_000
# Hashes do not compress; times come sorted.
_ENCODED = {"message": "PLAIN", "key_hash": "PLAIN", "ms": "DELTA_BINARY_PACKED"}


class NotKept(Exception):
    """Nothing can be kept, or what was kept is gone meanwhile; the message says why."""


class RunFiles:
    """Files below a root.

    Args:
        root: a path of Hadoop's.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._files, path = file_system(spark, root)
        self._path = self._files.makeQualified(path)
        uri = self._path.toUri()
        # What lies on this machine is read without Java.
        self._local = Path(uri.getPath()) if uri.getScheme() == "file" else None

    @property
    def root(self) -> str:
        """With its file system."""
        return str(self._path.toString())

    def read(
        self, name: str, columns: Sequence[str] | None = None, encoded: Collection[str] = ()
    ) -> pa.Table:
        """A Parquet file; `encoded` columns of text stay numbers with a dictionary.

        Raises:
            NotKept: it can't be read.
        """
        try:
            file = pq.ParquetFile(self._source(name), read_dictionary=list(encoded))
            return file.read(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException, Py4JJavaError) as error:
            raise NotKept(first_line(error)) from error

    def parts(
        self, name: str, columns: Sequence[str] | None, encoded: Collection[str]
    ) -> Iterator[pa.Table]:
        """The same, some rows at a time."""
        try:
            file = pq.ParquetFile(self._source(name), read_dictionary=list(encoded))
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, Py4JJavaError) as error:
            raise NotKept(first_line(error)) from error

    def listed(self, folder: str) -> list[str]:
        """The Parquet files of a folder that Spark wrote; none where there is no folder."""
        if self._local is not None:
            found = [each.name for each in (self._local / folder).glob("part-*")]
        else:
            files, path = file_system(self._spark, f"{self.root}/{folder}")
            there = files.listStatus(path) if files.exists(path) else ()
            found = [each.getPath().getName() for each in there]
        return [f"{folder}/{name}" for name in sorted(found) if name.startswith("part-")]

    @contextmanager
    def writing(self, folder: str) -> Iterator[Writing]:
        """Write Parquet files into a folder that exists, table by table."""
        local = self._local
        written = Path(tempfile.mkdtemp(prefix="ackfloor-kept-")) if local is None else None
        writing = Writing(written or local / folder)  # type: ignore[operator]
        try:
            yield writing
            writing.close()
            for file in () if written is None else written.iterdir():
                self._copy_in(file, f"{folder}/{file.name}")
        finally:
            writing.close()
            if written is not None:
                shutil.rmtree(written)

    def _source(self, name: str) -> Any:
        if self._local is not None:
            return str(self._local / name)
        files, path = file_system(self._spark, f"{self.root}/{name}")
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001
        stream = files.open(path)
        try:
            return pa.BufferReader(bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream)))
        finally:
            stream.close()

    def _copy_in(self, file: Path, name: str) -> None:
        files, path = file_system(self._spark, f"{self.root}/{name}")
        source = file_system(self._spark, file.as_uri())[1]
        files.copyFromLocalFile(False, True, source, path)


class Writing:
    """Parquet files that grow by tables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Append a table to a file; the tables of a file have the same columns."""
        if (writer := self._writers.get(name)) is None:
            encoding = {each: way for each, way in _ENCODED.items() if each in table.column_names}
            plain = [each for each in table.column_names if each not in encoding]
            writer = self._writers[name] = pq.ParquetWriter(
                self._folder / name, table.schema, use_dictionary=plain, column_encoding=encoding
            )
        writer.write_table(table.cast(writer.schema))

    def close(self) -> None:
        """Finish all files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
