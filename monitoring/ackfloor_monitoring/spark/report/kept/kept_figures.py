"""The figures of a table from what is kept of its days; what is not kept yet is counted first."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.forget.erasure_notes import all_notes
from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.kept.commits_kept import lost_topics
from ackfloor_monitoring.spark.report.kept.day_frames import (
    BUCKETS,
    DAY,
    counted,
    open_lives,
    still_open,
    topics_of,
)
from ackfloor_monitoring.spark.report.kept.kept_days import FORMAT, KeptDays, Run
from ackfloor_monitoring.spark.report.overview import Overview, overview_of_days
from ackfloor_monitoring.spark.report.time_axis import LONGEST_IN_SHORTER_MS, Period
from ackfloor_monitoring.spark.spark_errors import StoreFailed
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.settled_rows import commit_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ackfloor.commits import Settled

# Days with records, those of wrong clocks included. With more the report counts rows.
_MOST_DAYS = 4_000
# Each run is some files to open: the days of so many are put together in one.
MOST_RUNS = 16
# Lives that every task can hold.
_FEW = 200_000
Commits = Callable[[Mapping[str, Sequence[str]]], Sequence["Settled"]]


class NotKept(Exception):
    """Nothing can be kept; the message says why."""


@dataclass(slots=True)
class KeptFigures:
    """Sums of the days that are kept, of all groups or of one.

    Attributes:
        chosen: the run that has each day.
        fresh: how many of the days were counted by this report.
        commits: of all groups' retry topics; None where they are not known.
    """

    days: KeptDays
    failures: DataFrame
    chosen: Mapping[str, Run]
    fresh: int
    commits: Sequence[Settled] | None
    schemas: Mapping[str, StructType]
    group: str | None = None

    def groups(self) -> list[str]:
        """Of all rows, sorted; those that have a name."""
        found = self._read("topics", None).where("`group` is not null").select("group").distinct()
        return sorted(row["group"] for row in found.collect())

    def commits_of(self, tiers: Mapping[str, Sequence[str]]) -> Sequence[Settled]:
        """Of these topics."""
        topics = {topic for names in tiers.values() for topic in names}
        return [each for each in self.commits or () if each.topic in topics]

    def overview(self, made_at: datetime) -> Overview:
        """The table's groups, topics and days."""
        return overview_of_days(self._read("topics"), made_at)

    def counts(self, period: Period) -> DataFrame:
        """By the period's stretches."""
        return counts.summed(self._read("counts"), period)

    def durations(self) -> DataFrame:
        """Of all calls."""
        return counts.durations(self._read("calls"))

    def lives(self, period: Period, commits: Iterable[Settled] | None) -> DataFrame:
        """Of all messages, from their parts."""
        parts = self._of_group(self.days.read_parts(self.schemas["parts"], self.chosen)).drop(DAY)
        whole = lives.merged(parts, period)
        if commits is None:
            whole = whole.withColumns({"open": F.lit(0), "unknown": F.col("tier_records")})
        else:
            known = commit_frame(self.failures.sparkSession, commits)
            waiting = open_lives(self._read("open"), known)
            # Spark can't guess how few they are, and would move all lives to join them.
            few = waiting.limit(_FEW + 1).count() <= _FEW
            whole = lives.with_open(whole, F.broadcast(waiting) if few else waiting)
        return lives.ended(whole, period)

    def dead_letters(self) -> DataFrame:
        """All of them."""
        return self._read("dead_letters").drop(DAY)

    def samples(self, at_ms: Collection[int]) -> DataFrame:
        """The latest failure of each cause and day, where it is of these moments."""
        found = self._read("samples")
        return found.where(found["at_ms"].isin(sorted(at_ms))).orderBy(*counts.FIRST)

    def outside(self, period: Period, most: int) -> DataFrame:
        """The rows furthest outside: from the table, where they are few."""
        return counts.outside(self._of_group(self.failures), period, most)

    def _read(self, name: str, group: str | None = "") -> DataFrame:
        rows = self.days.read(name, self.schemas[name], self.chosen)
        return rows if group is None else self._of_group(rows)

    def _of_group(self, rows: DataFrame) -> DataFrame:
        return rows if self.group is None else rows.where(F.col("group") == self.group)


@contextmanager
def kept_figures(
    spark: SparkSession, table: str, commits: Commits | None, made_at: datetime
) -> Iterator[KeptFigures | None]:
    """All days of the table, those that are not kept yet counted and kept; None where the table is
    empty, or so small that its rows are counted.

    Raises:
        NotKept: it can't be written beside the table.
        TableRefused, StoreFailed: the table cannot be used.
    """
    days = KeptDays(spark, table)
    try:
        yield _Counting(spark, table, days, made_at).figures(commits)
    finally:
        days.close()


@dataclass(slots=True)
class _Counting:
    """Which days are kept, and counting those that are not."""

    spark: SparkSession
    table: str
    days: KeptDays
    made_at: datetime
    run: str | None = field(default=None, init=False)

    def figures(self, commits: Commits | None) -> KeptFigures | None:
        """As `kept_figures`."""
        notes = all_notes(self.spark, self.table)
        version, files = self._files()
        if not files or len(files) > _MOST_DAYS:
            return None
        failures = store.read_failures(self.spark, self.table, version)
        try:
            made = self._figures(failures, files, commits)
        except (Py4JJavaError, PySparkException, PermissionError) as error:
            self._discard()
            raise NotKept(store.first_line(error)) from error
        except BaseException:
            self._discard()
            raise
        # Whoever erases deletes what is kept after its note: so one of the two does.
        if all_notes(self.spark, self.table) != notes:
            self._discard()
            raise StoreFailed(f"table {self.table}: rows were erased meanwhile; run it again")
        return made

    def _files(self) -> tuple[int, dict[str, str]]:
        """The table's version and a hash of all that the rows of each day follow from."""
        unnamed = store.unnamed_cluster(self.spark, self.table)
        version, found = store.day_files(self.spark, self.table)
        if None in found:
            return version, {}
        return version, {
            str(day): hashlib.sha256(f"{FORMAT} {unnamed} {hashed}".encode()).hexdigest()
            for day, hashed in found.items()
        }

    def _figures(
        self, failures: DataFrame, files: Mapping[str, str], commits: Commits | None
    ) -> KeptFigures | None:
        schemas = _schemas(failures)
        runs = self.days.runs()
        kept = {
            day: [run for run in runs if run.days.get(day) == hashed]
            for day, hashed in files.items()
        }
        lacking = sorted(day for day, those in kept.items() if not those)
        self._write_topics(failures, lacking)
        first = {day: those[0] for day, those in kept.items() if those}
        first |= dict.fromkeys(lacking, Run(self.run or "", {}, None))
        topics = self.days.read("topics", schemas["topics"], first)
        seen = overview_of_days(topics, self.made_at)
        if is_short(seen):
            self._discard()
            return None
        known = None if commits is None else commits(seen.tiers)
        chosen = _valid(topics, kept, known)
        again = sorted(files.keys() - chosen.keys() - set(lacking))
        self._write_topics(failures, again)
        if counting := {day: files[day] for day in (*lacking, *again)}:
            gathered = _of_small_runs(chosen, known)
            run = self._count(failures, counting, gathered, known, schemas)
            chosen |= dict.fromkeys((*counting, *gathered), run)
        with suppress(Py4JJavaError):  # whoever may only read leaves that to others
            self.days.tidy(chosen.values())
        return KeptFigures(self.days, failures, chosen, len(counting), known, schemas)

    def _write_topics(self, failures: DataFrame, days: Sequence[str]) -> None:
        if days:
            self.run = self.run or self.days.begin()
            self.days.write(self.run, "topics", topics_of(self._of(failures, days)))

    def _count(
        self,
        failures: DataFrame,
        counting: Mapping[str, str],
        gathered: Mapping[str, Run],
        known: Sequence[Settled] | None,
        schemas: Mapping[str, StructType],
    ) -> Run:
        """One run, of the days that are counted and of those that other runs have counted."""
        assert self.run is not None
        run, rows = self.run, self._of(failures, list(counting))
        frames = dict(counted(rows, commit_frame(self.spark, known or ())))
        if gathered:
            moved = {name: self._moved(name, gathered, known, schemas) for name in schemas}
            frames = {name: frame.unionByName(moved[name]) for name, frame in frames.items()}
            self.days.write(run, "topics", moved["topics"])
            self.days.write(run, "samples", moved["samples"])
        with ThreadPoolExecutor(thread_name_prefix="keep") as pool:
            writing = [
                pool.submit(self.days.write_parts, run, frame)
                if name == "parts"
                else pool.submit(self.days.write, run, name, frame)
                for name, frame in frames.items()
            ]
            for each in writing:
                each.result()
        found = self.days.read(
            "counts", schemas["counts"], {day: Run(run, {}, None) for day in counting}
        )
        self.days.write(run, "samples", counts.latest(rows, found, DAY))
        files = {day: those.days[day] for day, those in gathered.items()}
        return self.days.finish(run, {**files, **counting}, known)

    def _moved(
        self,
        name: str,
        days: Mapping[str, Run],
        known: Sequence[Settled] | None,
        schemas: Mapping[str, StructType],
    ) -> DataFrame:
        """A frame of days that other runs have counted, as days of this one."""
        of_run = F.concat(F.substring_index(DAY, ".", 1), F.lit(f".{self.run}"))
        if name == "parts":
            parts = self.days.read_parts(schemas[name], days)
            return parts.withColumn(DAY, of_run).repartition(BUCKETS, "origin_offset")
        rows = self.days.read(name, schemas[name], days)
        if name == "open":
            rows = still_open(rows, commit_frame(self.spark, known or ())).drop("settled")
        return rows.withColumn(DAY, of_run)

    def _of(self, failures: DataFrame, days: Sequence[str]) -> DataFrame:
        """The rows of these days, with `DAY`."""
        assert self.run is not None
        rows = failures.where(F.col("day").isin([date.fromisoformat(day) for day in days]))
        name = F.concat(F.date_format("day", "yyyy-MM-dd"), F.lit(f".{self.run}"))
        return rows.withColumn(DAY, name)

    def _discard(self) -> None:
        if self.run is not None:
            with suppress(Py4JJavaError):
                self.days.discard(self.run)


def _schemas(failures: DataFrame) -> dict[str, StructType]:
    """Of all that is kept; nothing is counted for it."""
    rows = failures.withColumn(DAY, F.lit("").cast("string"))
    frames = dict(counted(rows, commit_frame(failures.sparkSession, ())))
    frames["topics"] = topics_of(rows)
    frames["samples"] = counts.latest(rows, frames["counts"], DAY)
    return {name: frame.schema for name, frame in frames.items()}


def is_short(seen: Overview) -> bool:
    """Whether stretches of its period are shorter than what is kept, or there is none."""
    if not seen.records:
        return True
    period = seen.period
    return period.last_ms - period.first_ms <= LONGEST_IN_SHORTER_MS


def _valid(
    topics: DataFrame, kept: Mapping[str, Sequence[Run]], known: Sequence[Settled] | None
) -> dict[str, Run]:
    """Of each day the newest run that holds with the commits of now, where there is one."""
    if known is None:
        return {day: those[0] for day, those in kept.items() if those}
    runs = {run.name: run for those in kept.values() for run in those}
    lost = {name: lost_topics(run.commits or (), known) for name, run in runs.items()}
    of_days = _retried(topics, set[str]().union(*lost.values()))
    found = {}
    for day, those in kept.items():
        valid = (
            run
            for run in those
            if run.commits is not None and not lost[run.name] & of_days.get(day, set())
        )
        if (run := next(valid, None)) is not None:
            found[day] = run
    return found


def _of_small_runs(chosen: Mapping[str, Run], known: Sequence[Settled] | None) -> dict[str, Run]:
    """The days of all runs but the largest, where there are many runs.

    Not where commits are not known: the days were counted with some, and would lose them.
    """
    sizes = Counter(run.name for run in chosen.values())
    if known is None or len(sizes) < MOST_RUNS:
        return {}
    largest = max(sizes, key=lambda name: (sizes[name], name))
    return {day: run for day, run in chosen.items() if run.name != largest}


def _retried(topics: DataFrame, names: set[str]) -> dict[str, set[str]]:
    """Which of these retry topics each day has records of."""
    found: dict[str, set[str]] = {}
    if names:
        rows = topics.where(F.col("topic").isin(sorted(names)) & (F.col("stage") == "retry"))
        day = F.substring_index(DAY, ".", 1).alias("day")
        for row in rows.select(day, "topic").distinct().collect():
            found.setdefault(row["day"], set()).add(row["topic"])
    return found
