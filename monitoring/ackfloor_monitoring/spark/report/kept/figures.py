"""The figures that a report is made of, as frames: counted from rows, or added up from days."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.deliveries import deliveries, failure_columns
from ackfloor_monitoring.spark.report.overview import Overview, overview
from ackfloor_monitoring.spark.report.time_axis import Period
from ackfloor_monitoring.spark.table.settled_rows import commit_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ackfloor.commits import Settled


class Figures(Protocol):
    """All that `build` asks for. The functions of the same names say what the frames hold."""

    def overview(self, made_at: datetime) -> Overview:
        """The table's groups, topics and days."""
        ...

    def counts(self, period: Period) -> DataFrame:
        """Of `report.counts`."""
        ...

    def durations(self) -> DataFrame:
        """Of `report.counts`."""
        ...

    def lives(self, period: Period, commits: Iterable[Settled] | None) -> DataFrame:
        """Of `report.lives`; without commits what is open is not known."""
        ...

    def dead_letters(self) -> DataFrame:
        """Of `report.lives`."""
        ...

    def samples(self, at_ms: Collection[int]) -> DataFrame:
        """Of `report.counts`: at least the latest failure of each cause."""
        ...

    def outside(self, period: Period, most: int) -> DataFrame:
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

    def counts(self, period: Period) -> DataFrame:
        """By the period's stretches."""
        return counts.counts(self._delivered, counts.stretch(period))

    def durations(self) -> DataFrame:
        """Of all calls."""
        return counts.durations(counts.calls(self._delivered))

    def lives(self, period: Period, commits: Iterable[Settled] | None) -> DataFrame:
        """Of all messages."""
        known = commit_frame(self._rows.sparkSession, commits or ())
        return lives.lives(self._rows, known, period)

    def dead_letters(self) -> DataFrame:
        """All of them."""
        return lives.dead_letters(self._rows)

    def samples(self, at_ms: Collection[int]) -> DataFrame:
        """All failures of these moments."""
        return counts.samples(self._failures, at_ms)

    def outside(self, period: Period, most: int) -> DataFrame:
        """The rows furthest outside."""
        return counts.outside(self._failures, period, most)
