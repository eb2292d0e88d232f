"""Where the counts of days are kept: folders of the table that Delta and its VACUUM leave alone.

Each run of counting has a folder of its own, `_report/RUN`, with what it has counted of its days,
and writes `days.json` last: without it the folder is as if it was not there. The note names each
day with the hash of its data files, so it holds for exactly these rows. Nothing in a folder is
changed later. Two reports that count at once write two folders, and each of them is right.

A folder that no report needs any more is marked, and deleted a day later: another one may be
reading it.

`NAME.parquet` holds rows of all days of the run, small ones that a report reads as a whole;
`NAME/kept_day=DAY` what Spark wrote of a day, large, of which a report reads next to nothing.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report.kept.day_frames import DAY
from ackfloor_monitoring.spark.report.kept.run_files import RunFiles, Writing
from ackfloor_monitoring.spark.table.store import KEPT_COUNTS, delete_folder, file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Goes up when what is kept changes its meaning: what was kept before is then not found.
FORMAT = 3
_NOTE, _UNNEEDED = "days.json", "unneeded"
_READERS_TAKE_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run of counting.

    Attributes:
        days: the hash of each day's data files, by day in ISO 8601.
        commits: those that its days were counted with; None where they were not known.
        made_ms: when its note was written.
        unneeded_ms: since when no report needs it; None where one does.
    """

    name: str
    days: Mapping[str, str]
    commits: Sequence[Settled] | None
    made_ms: int = 0
    unneeded_ms: int | None = None

    def key(self, day: str) -> str:
        """What a day of it is called in other runs."""
        return f"{day}.{self.name}"


@dataclass(slots=True)
class KeptDays:
    """The folders of a table."""

    spark: SparkSession
    table: str
    _files: RunFiles = field(init=False)
    _root: str = field(init=False)

    def __post_init__(self) -> None:
        self._files = RunFiles(self.spark, f"{self.table}/{KEPT_COUNTS}")
        self._root = self._files.root

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

    @contextmanager
    def writing(self, run: str) -> Iterator[Writing]:
        """Write the rows of all days: files `NAME.parquet`, with the column `DAY`."""
        with self._files.writing(run) as writing:
            yield writing

    def write_days(self, run: str, name: str, frame: DataFrame) -> None:
        """Write what is large, in folders of days."""
        frame.write.partitionBy(DAY).parquet(f"{self._root}/{run}/{name}")

    def copy_days(self, run: str, name: str, chosen: Mapping[str, Run]) -> None:
        """The same of days that other runs have counted."""
        context: Any = self.spark.sparkContext
        copy = context._jvm.org.apache.hadoop.fs.FileUtil.copy  # noqa: SLF001
        files, folder = file_system(self.spark, f"{self._root}/{run}/{name}")
        files.mkdirs(folder)
        for day, source in chosen.items():
            path = file_system(self.spark, f"{self._root}/{source.name}/{name}/{DAY}={day}")[1]
            if files.exists(path):
                configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
                copy(files, path, files, folder, False, configuration)

    def finish(self, run: str, days: Mapping[str, str], commits: Iterable[Settled] | None) -> Run:
        """Write the note: from now on the folder counts."""
        given = None if commits is None else list(commits)
        note = {
            "format": FORMAT,
            "days": days,
            "commits": None if given is None else [list(each) for each in given],
        }
        files, path = file_system(self.spark, f"{self._root}/{run}/{_NOTE}")
        stream = files.create(path, True)
        try:
            stream.write(bytearray(json.dumps(note).encode()))
        finally:
            stream.close()
        return Run(run, days, given)

    def discard(self, run: str) -> None:
        """Delete a folder."""
        delete_folder(self.spark, f"{self._root}/{run}")

    def read(
        self,
        name: str,
        chosen: Mapping[str, Run],
        columns: Collection[str] | None = None,
        encoded: Collection[str] = (),
    ) -> pa.Table:
        """The rows of the chosen days.

        Args:
            chosen: the run of each day.
            columns: only these, and `DAY` where it has to be looked at.
            encoded: of them text that stays numbers with a dictionary.
        """
        tables = []
        for run, days in days_of(chosen):
            names, text = _looked_at(run, days, columns, encoded)
            table = self._files.read(f"{run.name}/{name}.parquet", names, text)
            tables.append(_of_days(table, run, days, columns))
        return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()

    def read_parts(
        self,
        name: str,
        chosen: Mapping[str, Run],
        columns: Collection[str],
        encoded: Collection[str],
    ) -> Iterator[pa.Table]:
        """What `read` returns, some rows at a time: where there are millions."""
        for run, days in days_of(chosen):
            names, text = _looked_at(run, days, columns, encoded)
            for table in self._files.parts(f"{run.name}/{name}.parquet", names, text):
                yield _of_days(table, run, days, columns)

    def read_moved(self, run: Run) -> pa.Table:
        """The parts that a run has taken out of days, its own or those of other runs."""
        return self._files.read(f"{run.name}/moved.parquet")

    def read_day(
        self, name: str, day: str, run: Run, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """What Spark wrote of a day; None where it had nothing to write."""
        folder = f"{run.name}/{name}/{DAY}={day}"
        tables = [self._files.read(each, columns) for each in self._files.listed(folder)]
        return pa.concat_tables(tables) if tables else None

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
        return Run(name, note["days"], commits, made_ms)


def _looked_at(
    run: Run, days: Sequence[str], columns: Collection[str] | None, encoded: Collection[str]
) -> tuple[list[str] | None, list[str]]:
    """The columns to read where these days of a run are wanted, and which of them are encoded."""
    if columns is None:
        return None, list(encoded)
    more = () if len(days) == len(run.days) else (DAY,)
    return list(dict.fromkeys([*columns, *more])), [*encoded, DAY]


def _of_days(
    table: pa.Table, run: Run, days: Sequence[str], columns: Collection[str] | None
) -> pa.Table:
    if len(days) < len(run.days):
        table = table.filter(pc.is_in(table[DAY], pa.array(days)))
    return table if columns is None else table.select(list(columns))


def days_of(chosen: Mapping[str, Run]) -> list[tuple[Run, list[str]]]:
    """The days that are chosen of each run."""
    runs = {run.name: run for run in chosen.values()}
    found: dict[str, list[str]] = {name: [] for name in runs}
    for day, run in chosen.items():
        found[run.name].append(day)
    return [(runs[name], days) for name, days in found.items()]
