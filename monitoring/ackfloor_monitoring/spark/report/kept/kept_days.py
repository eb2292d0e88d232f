"""Where the counts of days are kept: folders of the table that Delta and its VACUUM leave alone.

Each run of counting has a folder of its own, `_report/RUN`, with Parquet files of all its days, and
writes `days.json` last: without it the folder is as if it was not there. The note names each day
with the hash of its data files, so it holds for exactly these rows. Nothing in a folder is changed
later. Two reports that count at once write two folders, and each of them is right.

A folder that no report needs any more is marked, and deleted a day later: another one may be
reading it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report.kept.day_frames import BUCKETS, DAY
from ackfloor_monitoring.spark.table.store import KEPT_COUNTS, delete_folder, file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Goes up when what is kept changes its meaning: what was kept before is then not found.
FORMAT = 1
_NOTE, _UNNEEDED = "days.json", "unneeded"
_READERS_TAKE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run of counting.

    Attributes:
        days: the hash of each day's data files, by day in ISO 8601.
        commits: those that its days were counted with; None where they were not known.
        parted: the days that have a folder of parts.
        made_ms: when its note was written.
        unneeded_ms: since when no report needs it; None where one does.
    """

    name: str
    days: Mapping[str, str]
    commits: Sequence[Settled] | None
    parted: frozenset[str] = frozenset()
    made_ms: int = 0
    unneeded_ms: int | None = None

    def key(self, day: str) -> str:
        """What a day of it is called in the column `DAY`."""
        return f"{day}.{self.name}"


@dataclass(slots=True)
class KeptDays:
    """The folders of a table."""

    spark: SparkSession
    table: str
    _root: str = field(init=False)
    _catalogued: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        files, path = file_system(self.spark, f"{self.table}/{KEPT_COUNTS}")
        self._root = files.makeQualified(path).toString()

    def runs(self) -> list[Run]:
        """The complete ones, the newest first."""
        found = [run for folder in self._folders() if (run := self._run(folder))]
        return sorted(found, key=lambda run: -run.made_ms)

    def begin(self) -> str:
        """A new folder; its name.

        Raises:
            Py4JJavaError, PermissionError: it can't be made.
        """
        name = uuid.uuid4().hex
        files, path = file_system(self.spark, f"{self._root}/{name}")
        if not files.mkdirs(path):
            raise PermissionError(self._root)
        return name

    def write(self, run: str, name: str, frame: DataFrame) -> None:
        """Add a frame, or more of it."""
        frame.write.mode("append").parquet(f"{self._root}/{run}/{name}")

    def write_parts(self, run: str, frame: DataFrame) -> None:
        """Add the frame `parts`, in folders of days and files of buckets."""
        # Spark knows buckets only of tables in its catalog. Dropped, the files stay.
        name = f"ackfloor_report_{uuid.uuid4().hex}"
        self._catalogued.append(name)
        frame.write.format("parquet").partitionBy(DAY).bucketBy(BUCKETS, "origin_offset").option(
            "path", f"{self._root}/{run}/parts"
        ).saveAsTable(name)

    def finish(self, run: str, days: Mapping[str, str], commits: Iterable[Settled] | None) -> Run:
        """Write the note: from now on the folder counts."""
        given = None if commits is None else [list(each) for each in commits]
        files, parts = file_system(self.spark, f"{self._root}/{run}/parts")
        # Where no row's origin is known there is none.
        listed = files.listStatus(parts) if files.exists(parts) else ()
        names = [each.getPath().getName() for each in listed]
        parted = [name.partition("=")[2].partition(".")[0] for name in names if "=" in name]
        note = {"format": FORMAT, "days": days, "commits": given, "parted": parted}
        path = file_system(self.spark, f"{self._root}/{run}/{_NOTE}")[1]
        stream = files.create(path, True)
        try:
            stream.write(bytearray(json.dumps(note).encode()))
        finally:
            stream.close()
        return Run(run, days, None, frozenset(parted))

    def discard(self, run: str) -> None:
        """Delete a folder."""
        delete_folder(self.spark, f"{self._root}/{run}")

    def read(self, name: str, schema: StructType, chosen: Mapping[str, Run]) -> DataFrame:
        """A frame of the chosen days.

        Args:
            chosen: the run of each day.
        """
        runs = sorted({run.name for run in chosen.values()})
        if not runs:
            return self.spark.createDataFrame([], schema)
        rows = self.spark.read.schema(schema).parquet(
            *(f"{self._root}/{run}/{name}" for run in runs)
        )
        return rows.where(rows[DAY].isin([run.key(day) for day, run in chosen.items()]))

    def read_parts(self, schema: StructType, chosen: Mapping[str, Run]) -> DataFrame:
        """The frame `parts` of the chosen days."""
        name = f"ackfloor_report_{uuid.uuid4().hex}"
        self._catalogued.append(name)
        columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema)
        self.spark.sql(
            f"CREATE TABLE {name} ({columns}) USING parquet PARTITIONED BY ({DAY}) "
            f"CLUSTERED BY (origin_offset) INTO {BUCKETS} BUCKETS "
            f"LOCATION '{_quoted(self._root)}/parts'"
        )
        added = " ".join(
            f"PARTITION ({DAY} = '{run.key(day)}') "
            f"LOCATION '{_quoted(self._root)}/{run.name}/parts/{DAY}={run.key(day)}'"
            for day, run in chosen.items()
            if day in run.parted
        )
        if added:
            self.spark.sql(f"ALTER TABLE {name} ADD {added}")
        return self.spark.table(name)

    def close(self) -> None:
        """Forget the entries in Spark's catalog."""
        for name in self._catalogued:
            self.spark.sql(f"DROP TABLE IF EXISTS {name}")
        self._catalogued.clear()

    def tidy(self, needed: Iterable[Run]) -> None:
        """Mark the folders that are not needed, and delete those that were not for a day."""
        names = {run.name for run in needed}
        now_ms = time.time() * 1000
        for folder in self._folders():
            name = folder.getPath().getName()
            files, mark = file_system(self.spark, f"{self._root}/{name}/{_UNNEEDED}")
            marked = files.exists(mark)
            if name in names:
                if marked:
                    files.delete(mark, False)
            elif not marked:
                # One that is being written has the mark as well, until a report needs it.
                files.create(mark, True).close()
            elif files.getFileStatus(mark).getModificationTime() < now_ms - _READERS_TAKE_MS:
                self.discard(name)

    def _folders(self) -> Iterator[Any]:
        files, path = file_system(self.spark, self._root)
        if files.exists(path):
            yield from (each for each in files.listStatus(path) if each.isDirectory())

    def _run(self, folder: Any) -> Run | None:
        name = folder.getPath().getName()
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001
        files, path = file_system(self.spark, f"{self._root}/{name}/{_NOTE}")
        try:
            status = files.getFileStatus(path)
            stream = files.open(path)
            try:
                text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
            note = json.loads(text)
        except (Py4JJavaError, ValueError):
            return None  # it is being written, or a kill left it, or it has just been deleted
        return self._made(name, note, status.getModificationTime())

    @staticmethod
    def _made(name: str, note: Mapping[str, Any], made_ms: int) -> Run | None:
        if note["format"] != FORMAT:
            return None
        commits = note["commits"]
        if commits is not None:
            commits = [
                Settled(topic, topic_id, partition, position, [tuple(run) for run in runs], refused)
                for topic, topic_id, partition, position, runs, refused in commits
            ]
        return Run(name, note["days"], commits, frozenset(note["parted"]), made_ms)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
