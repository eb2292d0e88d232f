"""A run that counts days: everything is written before its note is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.report.kept.day_frames import DAY, DayFrames
from ackfloor_monitoring.spark.report.kept.day_sums import day_sums
from ackfloor_monitoring.spark.report.kept.joined_lives import (
    HashesAndMoved,
    joined_parts,
    no_dead_letters,
)
from ackfloor_monitoring.spark.report.kept.kept_days import KeptDays, Run
from ackfloor_monitoring.spark.report.kept.run_files import Writing
from ackfloor_monitoring.spark.report.lives import PART
from ackfloor_monitoring.spark.table.settled_rows import commit_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ackfloor.commits import Settled

# What Spark counts, and what is summed up of its parts. All of it is read in each report.
_COUNTED = ("topics", "counts", "calls", "samples", "open")
_SUMMED = ("messages", "rest", "named_keys", "outcomes", "partitions", "times", "keys", "healed")
_BY_DAY = ("parts", "dead_letters")


@dataclass(frozen=True, slots=True)
class Counting:
    """One run, of days that are counted and of those that other runs have counted.

    Attributes:
        run: the name of its folder.
        counted: the days that are counted, with the hash of their data files.
        gathered: the days that it takes from others.
        commits: those of now; None where they are not known.
        at_hand: what joining needs of other runs.
    """

    days: KeptDays
    run: str
    counted: Mapping[str, str]
    gathered: Mapping[str, Run]
    commits: Sequence[Settled] | None
    at_hand: Future[HashesAndMoved]

    def write(self, failures: DataFrame, topics: pa.Table, chosen: Mapping[str, Run]) -> pa.Table:
        """Count and write all of it; returns the lives that no day decides, of all days.

        Args:
            failures: the table.
            topics: those of the days that are counted.
            chosen: the run of each other day.
        """
        found = {"topics": topics, **self._frames(failures)}
        with self.days.writing(self.run) as writing:
            for name in _COUNTED:
                writing.add(f"{name}.parquet", found[name])
            for day in sorted(self.counted):
                self._sum_up(writing, day, found["open"], topics)
            for name in (*_COUNTED, *_SUMMED) if self.gathered else ():
                writing.add(f"{name}.parquet", self.days.read(name, self.gathered))
        for name in _BY_DAY if self.gathered else ():
            self.days.copy_days(self.run, name, self.gathered)
        mine = Run(self.run, self.all_days, None)
        every = {**chosen, **dict.fromkeys(self.all_days, mine)}
        joined = joined_parts(self.days, every, self.at_hand.result(), unfinished=self.run)
        with self.days.writing(self.run) as writing:
            writing.add("moved.parquet", joined.read)
        self.days.finish(self.run, self.all_days, self.commits)
        return joined.parts

    @property
    def all_days(self) -> dict[str, str]:
        """Of the run, with the hash of their data files."""
        gathered = {day: run.days[day] for day, run in self.gathered.items()}
        return {**gathered, **self.counted}

    def _frames(self, failures: DataFrame) -> dict[str, pa.Table]:
        """What is counted with Spark, at the same time; what is large is written."""
        spark = failures.sparkSession
        frames = DayFrames(of_days(failures, self.counted), len(self.counted))
        with ThreadPoolExecutor(thread_name_prefix="keep") as pool:
            large = [
                pool.submit(self.days.write_days, self.run, "parts", frames.parts()),
                pool.submit(self.days.write_days, self.run, "dead_letters", frames.dead_letters()),
            ]
            counting = pool.submit(frames.counts().toArrow)
            calling = pool.submit(frames.calls().toArrow)
            # Where no commit is known nothing is open: what is not dead is unknown.
            opened = frames.open(commit_frame(spark, self.commits or ()))
            opening = pool.submit((opened.limit(0) if self.commits is None else opened).toArrow)
            counted = counting.result()
            samples = frames.samples(spark.createDataFrame(counted)).toArrow()
            for each in large:
                each.result()
            return {
                "counts": counted,
                "calls": calling.result(),
                "samples": samples,
                "open": opening.result(),
            }

    def _sum_up(self, writing: Writing, day: str, opened: pa.Table, topics: pa.Table) -> None:
        mine = Run(self.run, self.counted, None)
        parts = self.days.read_day("parts", day, mine)
        dead = self.days.read_day("dead_letters", day, mine)
        last_ms: dict[str | None, int] = {}
        for row in topics.filter(pc.equal(topics[DAY], day)).to_pylist():
            last_ms[row["group"]] = max(row["last_ms"], last_ms.get(row["group"], row["last_ms"]))
        found = day_sums(
            day,
            _no_parts() if parts is None else parts,
            no_dead_letters() if dead is None else dead,
            opened.filter(pc.equal(opened[DAY], day))["message"].to_numpy(),
            last_ms,
        )
        for name in _SUMMED:
            table = getattr(found, name) if hasattr(found, name) else getattr(found.plain, name)
            column = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), [day])
            writing.add(f"{name}.parquet", table.append_column(DAY, column.cast(pa.string())))


def of_days(failures: DataFrame, days: Mapping[str, str]) -> DataFrame:
    """The rows of these days, with `DAY`."""
    rows = failures.where(F.col("day").isin([date.fromisoformat(day) for day in days]))
    return rows.withColumn(DAY, F.date_format("day", "yyyy-MM-dd"))


def _no_parts() -> pa.Table:
    """The frame of a day without a record of known origin."""
    types = {
        **dict.fromkeys(("message", "key_hash"), pa.int64()),
        **dict.fromkeys(("group", "origin_topic"), pa.string()),
        "origin_partition": pa.int32(),
        "origin_offset": pa.int64(),
        "key": pa.binary(),
        "replays": pa.int32(),
        **dict.fromkeys(PART, pa.int64()),
    }
    return pa.schema(types).empty_table()
