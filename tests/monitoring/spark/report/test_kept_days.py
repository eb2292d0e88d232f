"""A report from kept days is the report that counts every row, field by field, whatever came since.

One history goes through all of it, drawn from a seed: each step costs two reports.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow.parquet as pq
import pytest

from ackfloor.commits import Settled
from ackfloor.redrive import KafkaOptions
from ackfloor_monitoring.spark.forget import erasure
from ackfloor_monitoring.spark.report import job
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.kept import (
    counting,
    joined_lives,
    kept_figures,
    kept_lives,
    run_files,
)
from ackfloor_monitoring.spark.report.kept.kept_days import KeptDays
from ackfloor_monitoring.spark.spark_errors import StoreFailed
from ackfloor_monitoring.spark.table import store
from benchmarks.failures.month import Month
from benchmarks.failures.rows import write_parquet
from tests.monitoring.spark.failure_rows import dead, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1_200)]

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SEED = 11
DAYS = 14
CLIENTS = cast(KafkaOptions, object())


@dataclass
class History:
    """A table, the commits of now, and what is still to come."""

    spark: SparkSession
    table: str
    rows: list[dict[str, Any]]
    commits: list[Settled]
    told: list[str] = field(default_factory=list)
    drawn: random.Random = field(default_factory=lambda: random.Random(SEED))

    def add(self, rows: Sequence[dict[str, Any]]) -> set[date]:
        """Append rows; their days."""
        store.append(frame(self.spark, list(rows)).coalesce(1), self.table)
        return {row["day"] for row in rows}

    def report(self, *, keep: bool, commits: bool = True, group: str | None = None) -> Report:
        """One report, from kept days or from rows."""
        return job.failure_history(
            self.spark, self.table, group=group, since=Since(),
            clients=CLIENTS if commits else None, made_at=NOW, keep=keep, say=self.told.append,
        )  # fmt: skip

    def same(self, *, commits: bool = True, group: str | None = None) -> Report:
        """The report from kept days, which is that from rows."""
        kept = self.report(keep=True, commits=commits, group=group)
        counted = self.report(keep=False, commits=commits, group=group)
        for name in set(Report.__slots__) - {"days_counted", "days_kept"}:
            assert getattr(kept, name) == getattr(counted, name), name
        assert self.told == []
        return kept

    def files(self, day: date) -> list[Path]:
        """The data files of a day."""
        return sorted(Path(self.table).glob(f"day={day}/*/*.parquet"))


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Two weeks that are still to come, and commits that settle nearly all of it."""
    month = Month(120, seed=SEED)
    write_parquet(month, tmp_path / "rows")
    rows = pq.read_table(tmp_path / "rows").to_pylist()
    # Each day costs a test some files to open.
    some = sorted({row["day"] for row in rows})[:DAYS]
    rows = [row for row in rows if row["day"] in some]
    commits = [each.settled() for each in month.commits()]
    made = History(spark, str(tmp_path / "failures"), rows, commits)
    # What is read and summed up piece by piece is so here, too.
    monkeypatch.setattr(kept_lives, "_AT_ONCE", 7)
    monkeypatch.setattr(joined_lives, "_AT_ONCE", 50)
    monkeypatch.setattr(run_files, "_ROWS_AT_ONCE", 9)
    monkeypatch.setattr(job, "committed_for", lambda _, tiers: _of(made.commits, tiers))
    store.open_table(spark, made.table)
    return made


def _of(commits: list[Settled], tiers: dict[str, list[str]]) -> list[Settled]:
    topics = {topic for names in tiers.values() for topic in names}
    return [each for each in commits if each.topic in topics]


def back(commits: list[Settled], share: float) -> list[Settled]:
    """The same groups, earlier: they had come so far."""
    return [each._replace(position=int(each.position * share), runs=[]) for each in commits]


def a_failure(offset: int, at: datetime) -> dict[str, Any]:
    """Of a worker whose clock says so."""
    times = {"event_time": at, "day": at.date(), "first_failed_at": at, "error_message": "no"}
    origin = {"origin_topic": "orders", "origin_partition": 0, "origin_offset": 10**6 + offset}
    return dead(offset, group="far", key=b"far", **origin, **times)


def test_kept_days_add_up_to_the_report_on_all_rows(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through new days, late rows, commits that advance, go back and are unknown, wrong clocks,
    retention and merged files; and only days that have changed are counted."""
    monkeypatch.setattr(kept_figures, "MOST_RUNS", 2)
    at_the_end, drawn = history.commits, history.drawn
    days = sorted({row["day"] for row in history.rows})
    begun, late, coming = [], [], []
    for row in history.rows:
        in_time = begun if drawn.random() < 0.9 else late
        (in_time if row["day"] < days[9] else coming).append(row)
    changed = history.add(begun)
    history.commits = back(at_the_end, 0.2)
    assert history.same().days_counted == len(changed)
    # A far day, one of 2090, late rows, the second half with what replays healed.
    early = datetime(days[0].year, days[0].month, days[0].day, 5, tzinfo=UTC) - timedelta(days=45)
    wrong = [a_failure(1, early), a_failure(2, datetime(2090, 1, 1, tzinfo=UTC))]
    changed = history.add([*coming, *late, *wrong])
    history.commits = at_the_end
    report = history.same()
    assert (report.days_counted, report.far_records) == (len(changed), 2)
    assert report.days_kept == len({r["day"] for r in begun} - changed) > 0
    assert min(report.totals.recovered, report.totals.dead, report.totals.replays) > 0
    # The far day becomes near; one group's offsets are reset, another's topic is not known.
    changed = history.add([a_failure(3, early + timedelta(days=25))])
    topics = sorted({each.topic for each in at_the_end})
    history.commits = [
        *back([each for each in at_the_end if each.topic < topics[3]], 0.5),
        *(each for each in at_the_end if each.topic > topics[3]),
    ]
    report = history.same()
    assert report.totals.unknown > 0
    assert report.far_records == 1
    assert report.days_counted > len(changed)
    # Files are merged, old days go.
    store.rewrite(history.spark, f"OPTIMIZE {store.table_name(history.table)}")
    store.drop_older(history.spark, history.table, days[4])
    history.commits = at_the_end
    history.same(group="mail")
    # What is left of this group spans less than two days: its rows are counted.
    assert history.same(group="far").bucket_s < 6 * 3_600
    assert history.report(keep=True).days_counted == 0


def test_what_is_kept_is_not_read_again_and_is_never_half(history: History) -> None:
    """A day whose files are gone is in the report; what a kill left is counted anew; two reports
    at once are both right; what is forgotten is not kept."""
    history.add(history.rows)
    in_the_way = Path(history.table) / "_report"
    in_the_way.touch()
    counted = history.report(keep=True)
    (line,) = history.told
    assert line.startswith(f"no counts can be kept beside {history.table}, so all days are counted")
    history.told.clear()
    in_the_way.unlink()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: history.report(keep=True), range(2))
    assert history.told == []
    assert one == other == counted
    day = max({row["day"] for row in history.rows})
    for file in history.files(day):
        file.rename(file.with_suffix(".away"))
    without = history.report(keep=True)
    assert (without.days_counted, without.days_kept) == (0, one.days_counted)
    assert replace(without, days_counted=one.days_counted, days_kept=0) == one
    # Nor are the lives of these days summed up again.
    for folder in [*Path(history.table).glob("_report/*/parts")]:
        folder.rename(folder.with_suffix(".away"))
    assert history.report(keep=True) == without
    for file in Path(history.table).glob(f"day={day}/*/*.away"):
        file.rename(file.with_suffix(".parquet"))
    for note in Path(history.table).glob("_report/*/days.json"):
        note.write_text(note.read_text()[:-1])
    assert history.report(keep=True) == one
    key = next(row["key"] for row in history.rows if row["key"])
    condition = erasure.of_key(key)
    found = erasure.look(history.spark, history.table, condition)
    assert erasure.erase(history.spark, history.table, condition, found, "me").rows > 0
    assert not (Path(history.table) / "_report").exists()
    assert history.same(commits=False).totals.records < one.totals.records


def test_what_is_forgotten_meanwhile_is_not_kept(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where all was counted and its note not looked at yet, nor in the report that reads
    what is gone by then."""
    history.add(history.rows[:600])
    keys = iter(sorted({row["key"] for row in history.rows[:600]}))
    kept = Path(history.table) / "_report"
    write, durations = counting.Counting.write, kept_figures.KeptFigures.durations

    def forget() -> None:
        condition = erasure.of_key(next(keys))
        found = erasure.look(history.spark, history.table, condition)
        assert erasure.erase(history.spark, history.table, condition, found, "me").rows > 0

    def written(*given: Any) -> Any:
        made = write(*given)
        forget()
        return made

    def added(*given: Any) -> Any:
        monkeypatch.undo()
        monkeypatch.setattr(job, "committed_for", lambda _, tiers: _of(history.commits, tiers))
        forget()
        return durations(*given)

    monkeypatch.setattr(counting.Counting, "write", written)
    with pytest.raises(StoreFailed, match="rows were erased meanwhile; run it again"):
        history.report(keep=True)
    assert not [*kept.rglob("*.parquet")]
    monkeypatch.setattr(counting.Counting, "write", write)
    monkeypatch.setattr(kept_figures.KeptFigures, "durations", added)
    found = history.report(keep=True)
    assert found.days_kept == 0
    assert history.told[0].startswith("no counts can be kept beside")
    history.told.clear()
    assert not [*kept.rglob("*.parquet")]
    assert history.same().totals == found.totals


def test_folders_that_no_report_needs_go_a_day_later(spark: SparkSession, tmp_path: Path) -> None:
    """They are marked first: another report may be reading them."""
    days = KeptDays(spark, str(tmp_path))
    needed, old = days.begin(), days.begin()
    run = days.finish(needed, {"2026-10-01": "a"}, None)
    assert [each.name for each in days.runs()] == [needed]
    days.tidy([run])
    mark = tmp_path / "_report" / old / "unneeded"
    assert mark.exists()
    days.tidy([run])
    assert mark.exists()
    yesterday_ms = int((datetime.now(UTC) - timedelta(days=1, hours=1)).timestamp() * 1000)
    os.utime(mark, (yesterday_ms / 1000, yesterday_ms / 1000))
    days.tidy([run])
    assert not mark.parent.exists()
    assert (tmp_path / "_report" / needed).exists()
