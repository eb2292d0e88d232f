"""The figures that a report is made of: counted from rows here, or added up from days."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.deliveries import deliveries, failure_columns
from ackfloor_monitoring.spark.report.overview import Overview, overview
from ackfloor_monitoring.spark.report.time_axis import Period
from ackfloor_monitoring.spark.table.settled_rows import commit_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ackfloor.commits import Settled
    from ackfloor_monitoring.spark.report.sums import Sums


class LifeFigures(Protocol):
    """Sums over lives. The functions of the same names in `report.lives` say what rows hold."""

    def outcome_counts(self) -> Sequence[Sums]:
        """Lives by outcome."""
        ...

    def partitions(self) -> Sequence[Sums]:
        """Messages by source partition."""
        ...

    def hot_keys(self, most: int) -> Sequence[Sums]:
        """The keys with the most failures, in any order."""
        ...

    def replays_by_cause(self) -> Sequence[Sums]:
        """What became of replays."""
        ...

    def times(self, handlers: pa.Table) -> Sequence[Sums]:
        """Percentiles of recovery and death, by handler; `handlers` from `sums`."""
        ...


class Figures(Protocol):
    """All that `build` asks for. The functions of the same names say what rows hold."""

    def overview(self, made_at: datetime) -> Overview:
        """The table's groups, topics and days."""
        ...

    def counts(self, period: Period) -> pa.Table:
        """Of `report.counts`."""
        ...

    def durations(self) -> Sequence[Sums]:
        """Of `report.counts`."""
        ...

    def lives(
        self, period: Period, commits: Iterable[Settled] | None
    ) -> AbstractContextManager[LifeFigures]:
        """What became of all messages; without commits what is open is not known."""
        ...

    def samples(self, at_ms: Collection[int]) -> Sequence[Sums]:
        """Of `report.counts`: at least the latest failure of each cause, in their order."""
        ...

    def outside(self, period: Period, most: int) -> Sequence[Sums]:
        """Of `report.counts`."""
        ...


class RowFigures:
    """Counted from the rows of the table `failures`."""

    def __init__(self, failures: DataFrame) -> None:
        self._failures = failures
        self._rows = failure_columns(failures)
        self._delivered = deliveries(self._rows)

    def overview(self, made_at: datetime) -> Overview:
        """The table's groups, topics and days."""
        return overview(self._rows, made_at)

    def counts(self, period: Period) -> pa.Table:
        """By the period's stretches."""
        return counts.counts(self._delivered, counts.stretch(period)).toArrow()

    def durations(self) -> Sequence[Sums]:
        """Of all calls."""
        return rows_of(counts.durations(counts.calls(self._delivered)))

    @contextmanager
    def lives(self, period: Period, commits: Iterable[Settled] | None) -> Iterator[LifeFigures]:
        """Of all messages: cached in memory meanwhile, and on disk where memory is short."""
        known = commit_frame(self._rows.sparkSession, commits or ())
        cached = lives.lives(self._rows, known, period).persist()
        try:
            yield _RowLives(cached, self._rows)
        finally:
            cached.unpersist()

    def samples(self, at_ms: Collection[int]) -> Sequence[Sums]:
        """All failures of these moments."""
        return rows_of(counts.samples(self._failures, at_ms))

    def outside(self, period: Period, most: int) -> Sequence[Sums]:
        """The rows furthest outside."""
        return rows_of(counts.outside(self._failures, period, most))


class _RowLives:
    def __init__(self, lived: DataFrame, rows: DataFrame) -> None:
        self._lived, self._rows = lived, rows
        self._messages = lives.messages(lived)  # cheaper to sum up twice than to keep

    def outcome_counts(self) -> Sequence[Sums]:
        return rows_of(lives.outcome_counts(self._lived))

    def partitions(self) -> Sequence[Sums]:
        return rows_of(lives.partitions(self._messages))

    def hot_keys(self, most: int) -> Sequence[Sums]:
        return rows_of(lives.hot_keys(self._messages, most))

    def replays_by_cause(self) -> Sequence[Sums]:
        return rows_of(lives.replays_by_cause(self._lived, lives.dead_letters(self._rows)))

    def times(self, handlers: pa.Table) -> Sequence[Sums]:
        named = self._lived.sparkSession.createDataFrame(handlers)
        return rows_of(lives.times(self._lived, named))


def rows_of(frame: DataFrame) -> list[Sums]:
    """The rows of a small frame."""
    return [row.asDict() for row in frame.collect()]
