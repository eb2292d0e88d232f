"""The job: read the table and the groups' commits, return the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.forget.erasure_notes import notes_since
from ackfloor_monitoring.spark.report.answer import Erased, Report
from ackfloor_monitoring.spark.report.build import Commits, Since, report_of
from ackfloor_monitoring.spark.report.kept.figures import Figures, RowFigures
from ackfloor_monitoring.spark.report.kept.kept_figures import is_short, kept_figures
from ackfloor_monitoring.spark.report.kept.run_files import NotKept
from ackfloor_monitoring.spark.spark_errors import NothingToReport
from ackfloor_monitoring.spark.table.clusters import narrowed
from ackfloor_monitoring.spark.table.settled_rows import committed_for
from ackfloor_monitoring.spark.table.store import read_failures, readable_store_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackfloor.redrive import KafkaOptions

_ERASURES_SAID: Final = timedelta(days=7)


def _nothing(line: str) -> None:
    """Say nothing."""


def failure_history(
    spark: SparkSession,
    table: str,
    *,
    group: str | None,
    cluster: str | None = None,
    since: Since,
    clients: KafkaOptions | None,
    made_at: datetime,
    keep: bool = False,
    say: Callable[[str], None] = _nothing,
) -> Report:
    """The report on a table of failures.

    Args:
        spark: the session.
        table: the table's path.
        group: only this consumer group; None for all.
        cluster: only this Kafka cluster, in a table of several; None for all.
        since: from when on something is new.
        clients: from `ackfloor.redrive.kafka_options`, to read the groups' commits; None leaves
            them out, and the report says what is unknown then.
        keep: keep what is counted of each day beside the table, and take what is kept there.
        say: takes a line, where that is not possible.

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
        NothingToReport: it has no failure of the group, or of the cluster.
        UnknownRelease: no failure names the release.
        KafkaUnreachable: the commits can't be read.
    """
    commits = None if clients is None else partial(committed_for, clients)
    asked = _Asked(table, group, since, made_at)
    made = None
    if keep and cluster is None:
        try:
            made = _of_kept_days(spark, asked, commits)
        except NotKept as failed:
            say(f"no counts can be kept beside {table}, so all days are counted: {failed}")
    if made is None:
        made = _of_rows(spark, asked, cluster, commits)
    return replace(made, erased=_erased(spark, table, made_at))


@dataclass(frozen=True, slots=True)
class _Asked:
    table: str
    group: str | None
    since: Since
    made_at: datetime

    def report(self, figures: Figures, commits: Commits | None) -> Report:
        """The report from these figures."""
        return report_of(figures, commits, table=self.table, since=self.since, made_at=self.made_at)

    def require_group(self, groups: Sequence[str]) -> None:
        """Raise NothingToReport where the table has none of its name."""
        if self.group is not None and self.group not in groups:
            named = ", ".join(groups) or "none"
            raise NothingToReport(
                f"table {self.table}: no failure of group {self.group!r}; it has {named}"
            )


def _of_kept_days(spark: SparkSession, asked: _Asked, commits: Commits | None) -> Report | None:
    """From the days that are kept and those that it counts; None where rows are to be counted."""
    with (
        readable_store_errors(asked.table),
        kept_figures(spark, asked.table, commits, asked.made_at) as figures,
    ):
        if figures is None:
            return None
        if asked.group is not None:
            asked.require_group(figures.groups())
        of_group = replace(figures, group=asked.group)
        if asked.group is not None and is_short(of_group.overview(asked.made_at)):
            return None
        made = asked.report(of_group, None if commits is None else figures.commits_of)
        kept = len(figures.chosen) - figures.fresh
        return replace(made, days_counted=figures.fresh, days_kept=kept)


def _of_rows(
    spark: SparkSession, asked: _Asked, cluster: str | None, commits: Commits | None
) -> Report:
    failures = read_failures(spark, asked.table)
    with readable_store_errors(asked.table):
        failures = narrowed(failures, cluster, asked.table)
        if asked.group is not None:
            found = failures.where("`group` is not null").select("group").distinct().collect()
            asked.require_group(sorted(row["group"] for row in found))
            failures = failures.where(F.col("group") == asked.group)
        return asked.report(RowFigures(failures), commits)


def _erased(spark: SparkSession, table: str, made_at: datetime) -> tuple[Erased, ...]:
    """What was erased on request lately."""
    notes = notes_since(spark, table, made_at - _ERASURES_SAID)
    return tuple(
        Erased(datetime.fromisoformat(note.at), note.by, note.rows, note.messages, note.done)
        for note in notes
    )
