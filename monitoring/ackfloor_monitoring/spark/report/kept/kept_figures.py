"""The figures of a table from what is kept of its days; what is not kept yet is counted first.

Theory. A report is sums over rows, over messages' lives, and a few single records. Of each day is
kept what can be added up later, whatever the commits and the period are then. A life that lies in
one day, and of which nothing is open, adds to each report the same (`day_sums`); the few others are
kept as they are, and looked at in each report (`joined_lives`, `kept_lives`).

Invariants.

I1. What is kept of a day depends on its rows, and on the commits that it was counted with, which
    are kept with it. Nothing depends on other days, on the period, on the group that is asked for.
    Only `moved` has rows of other days, and names the run whose they are.
I2. A record that was settled stays settled, as long as the commits of now contain those that the
    day was counted with (`commits_kept.contained`); where they do not, the day is counted anew. So
    only `open` has to be compared with the commits of now.
I3. A day is drawn as a whole or not at all, so a time that is kept with it says whether it is.
I4. In each report all parts of a life that more than one day decides are there, and what they had
    added to their days is taken away: nothing is there twice, and nothing is missing, whichever
    runs have counted the days.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.forget.erasure_notes import all_notes
from ackfloor_monitoring.spark.report import counts
from ackfloor_monitoring.spark.report.kept.commits_kept import lost_topics
from ackfloor_monitoring.spark.report.kept.counting import Counting, of_days
from ackfloor_monitoring.spark.report.kept.day_frames import DAY, DayFrames
from ackfloor_monitoring.spark.report.kept.figures import rows_of
from ackfloor_monitoring.spark.report.kept.joined_lives import HashesAndMoved, joined_parts
from ackfloor_monitoring.spark.report.kept.kept_days import FORMAT, KeptDays, Run
from ackfloor_monitoring.spark.report.kept.kept_lives import KeptLives
from ackfloor_monitoring.spark.report.kept.quantiles import percentiles, rows_by
from ackfloor_monitoring.spark.report.kept.run_files import NotKept
from ackfloor_monitoring.spark.report.overview import Overview, overview_of_days
from ackfloor_monitoring.spark.report.time_axis import LONGEST_IN_SHORTER_MS, Period
from ackfloor_monitoring.spark.spark_errors import StoreFailed
from ackfloor_monitoring.spark.table import store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor.commits import Settled
    from ackfloor_monitoring.spark.report.sums import Sums

# Days with records, those of wrong clocks included. With more the report counts rows.
_MOST_DAYS = 4_000
# Each run is some files to open: the days of so many are put together in one.
MOST_RUNS = 16
Commits = Callable[[Mapping[str, Sequence[str]]], Sequence["Settled"]]


@dataclass(slots=True)
class KeptFigures:
    """Sums of the days that are kept, of all groups or of one.

    Attributes:
        chosen: the run that has each day.
        fresh: how many of the days were counted by this report.
        commits: of all groups' retry topics; None where they are not known.
        joined: from `joined_lives`.
        topics: rows of each topic and day.
    """

    days: KeptDays
    failures: DataFrame
    chosen: Mapping[str, Run]
    fresh: int
    commits: Sequence[Settled] | None
    joined: pa.Table
    topics: Sequence[Sums]
    group: str | None = None

    def groups(self) -> list[str]:
        """Of all rows, sorted; those that have a name."""
        return sorted({row["group"] for row in self.topics if row["group"] is not None})

    def commits_of(self, tiers: Mapping[str, Sequence[str]]) -> Sequence[Settled]:
        """Of these topics."""
        topics = {topic for names in tiers.values() for topic in names}
        return [each for each in self.commits or () if each.topic in topics]

    def overview(self, made_at: datetime) -> Overview:
        """The table's groups, topics and days."""
        return overview_of_days(self._topics(), made_at)

    def counts(self, period: Period) -> pa.Table:
        """By the period's stretches."""
        return counts.summed(self._of_group(self.days.read("counts", self.chosen)), period)

    def durations(self) -> Sequence[Sums]:
        """Of all calls."""
        columns = ["group", "handler", "duration_ms", "calls"]
        calls = self._of_group(self.days.read("calls", self.chosen, columns, columns[:2]))
        found: list[Sums] = []
        for (group, handler), rows in rows_by(calls, ("group", "handler")):
            took = calls.select(["duration_ms", "calls"]).take(pa.array(rows))
            took = took.filter(pc.is_valid(took["duration_ms"])).sort_by("duration_ms")
            values, times = (took[name].to_numpy() for name in ("duration_ms", "calls"))
            spread = percentiles(values, (0.5, 0.95, 0.99, 1.0), times)
            found.append({"group": group, "handler": handler, "duration_ms": spread})
        return found

    @contextmanager
    def lives(self, period: Period, commits: Iterable[Settled] | None) -> Iterator[KeptLives]:
        """Of all messages."""
        spans: dict[str, tuple[int, int]] = {}
        for row in self._topics():
            first, last = spans.get(row[DAY], (row["first_ms"], row["last_ms"]))
            spans[row[DAY]] = min(first, row["first_ms"]), max(last, row["last_ms"])
        yield KeptLives(
            self.days,
            {day: self.chosen[day] for day in spans},
            # A day is drawn as a whole or not at all.
            [day for day, (first, last) in spans.items()
             if first < period.first_ms or last > period.last_ms],
            self.joined,
            period,
            None if commits is None else list(commits),
            self._of_group,
        )  # fmt: skip

    def samples(self, at_ms: Collection[int]) -> Sequence[Sums]:
        """The latest failure of each cause and day, where it is of these moments."""
        found = self.days.read("samples", self.chosen)
        chosen = found.filter(pc.is_in(found["at_ms"], pa.array(sorted(at_ms), pa.int64())))
        rows: list[Sums] = self._of_group(chosen).to_pylist()
        return sorted(rows, key=lambda row: [row[name] for name in counts.FIRST])

    def outside(self, period: Period, most: int) -> Sequence[Sums]:
        """The rows furthest outside: from the table, where they are few."""
        rows = self.failures
        if self.group is not None:
            rows = rows.where(F.col("group") == self.group)
        return rows_of(counts.outside(rows, period, most))

    def _topics(self) -> Sequence[Sums]:
        return [row for row in self.topics if self.group in (None, row["group"])]

    def _of_group(self, rows: pa.Table) -> pa.Table:
        return rows if self.group is None else rows.filter(pc.equal(rows["group"], self.group))


@contextmanager
def kept_figures(
    spark: SparkSession, table: str, commits: Commits | None, made_at: datetime
) -> Iterator[KeptFigures | None]:
    """All days of the table, those that are not kept yet counted and kept; None where the table is
    empty, or so small that its rows are counted.

    Raises:
        NotKept: it can't be written beside the table, or read; in what is done with it as well.
        TableRefused, StoreFailed: the table cannot be used.
    """
    yield _Choosing(spark, table, KeptDays(spark, table), made_at).figures(commits)


@dataclass(slots=True)
class _Choosing:
    """Which days are kept, and counting those that are not."""

    spark: SparkSession
    table: str
    days: KeptDays
    made_at: datetime
    run: str | None = field(default=None, init=False)

    def figures(self, commits: Commits | None) -> KeptFigures | None:
        """As `kept_figures`."""
        notes = all_notes(self.spark, self.table)
        with ThreadPoolExecutor(2, "kept") as pool:
            # Delta takes seconds to say which days there are.
            ahead = pool.submit(self._read_ahead)
            listing = pool.submit(store.day_files, self.spark, self.table)
            unnamed = store.unnamed_cluster(self.spark, self.table)
            version, found = listing.result()
            files = _named(found, unnamed)
            if not files or len(files) > _MOST_DAYS:
                return None
            return self._of_days(version, files, commits, notes, ahead)

    def _of_days(
        self,
        version: int,
        files: Mapping[str, str],
        commits: Commits | None,
        notes: object,
        ahead: Future[HashesAndMoved],
    ) -> KeptFigures | None:
        failures = store.read_failures(self.spark, self.table, version)
        try:
            made = self._figures(failures, files, commits, ahead)
        except (Py4JJavaError, PySparkException, OSError, pa.ArrowException) as error:
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

    def _read_ahead(self) -> HashesAndMoved:
        """What joining will need, if the newest run of each day holds."""
        at_hand = HashesAndMoved(self.days)
        newest: dict[str, Run] = {}
        for run in self.days.runs():
            newest = {**dict.fromkeys(run.days, run), **newest}
        # Whatever can't be read is missed when it is asked for.
        with suppress(NotKept, Py4JJavaError):
            at_hand.read(newest)
        return at_hand

    def _figures(
        self,
        failures: DataFrame,
        files: Mapping[str, str],
        commits: Commits | None,
        ahead: Future[HashesAndMoved],
    ) -> KeptFigures | None:
        runs = self.days.runs()
        kept = {
            day: [run for run in runs if run.days.get(day) == hashed]
            for day, hashed in files.items()
        }
        lacking = {day: hashed for day, hashed in files.items() if not kept[day]}
        first = {day: those[0] for day, those in kept.items() if those}
        topics = [_topics(failures, lacking)]
        if first:
            topics.append(self.days.read("topics", first))
        found = pa.concat_tables(topics, promote_options="permissive").to_pylist()
        if is_short(seen := overview_of_days(found, self.made_at)):
            return None
        known = None if commits is None else commits(seen.tiers)
        chosen = _valid(found, kept, known)
        counting = {day: hashed for day, hashed in files.items() if day not in chosen}
        if not counting:
            joined = joined_parts(self.days, chosen, ahead.result()).parts
        else:
            if again := {day: counting[day] for day in counting if day not in lacking}:
                topics[0] = pa.concat_tables([topics[0], _topics(failures, again)])
            gathered = _of_small_runs(chosen, known)
            self.run = self.days.begin()
            run = Counting(self.days, self.run, counting, gathered, known, ahead)
            joined = run.write(failures, topics[0], chosen)
            chosen |= dict.fromkeys(run.all_days, Run(self.run, run.all_days, known))
        with suppress(Py4JJavaError):  # whoever may only read leaves that to others
            self.days.tidy(chosen.values())
        return KeptFigures(self.days, failures, chosen, len(counting), known, joined, found)

    def _discard(self) -> None:
        if self.run is not None:
            with suppress(Py4JJavaError):
                self.days.discard(self.run)


def _named(found: Mapping[str | None, str], unnamed: str | None) -> dict[str, str]:
    """A hash of all that the rows of each day follow from; nothing where there is a row of no day.

    Args:
        found: the hash of each day's data files.
        unnamed: the cluster of rows that name none.
    """
    if None in found:
        return {}
    return {
        str(day): hashlib.sha256(f"{FORMAT} {unnamed} {hashed}".encode()).hexdigest()
        for day, hashed in found.items()
    }


def _topics(failures: DataFrame, days: Mapping[str, str]) -> pa.Table:
    """The topics of days, counted."""
    return DayFrames(of_days(failures, days), len(days)).topics().toArrow()


def is_short(seen: Overview) -> bool:
    """Whether stretches of its period are shorter than what is kept, or there is none."""
    if not seen.records:
        return True
    period = seen.period
    return period.last_ms - period.first_ms <= LONGEST_IN_SHORTER_MS


def _valid(
    topics: Iterable[Sums], kept: Mapping[str, Sequence[Run]], known: Sequence[Settled] | None
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


def _retried(topics: Iterable[Sums], names: set[str]) -> dict[str, set[str]]:
    """Which of these retry topics each day has records of."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in topics:
        if row["stage"] == "retry" and row["topic"] in names:
            found[row[DAY]].add(row["topic"])
    return found
