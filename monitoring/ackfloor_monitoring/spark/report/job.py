"""The job: read the table and the groups' commits, return the report."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ackfloor_monitoring.spark.forget.erasure_notes import notes_since
from ackfloor_monitoring.spark.report.answer import Erased, Report
from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.spark_errors import NothingToReport
from ackfloor_monitoring.spark.table.clusters import narrowed
from ackfloor_monitoring.spark.table.settled_rows import committed_for
from ackfloor_monitoring.spark.table.store import read_failures, readable_store_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackfloor.redrive import KafkaOptions

_ERASURES_SAID: Final = timedelta(days=7)


def failure_history(
    spark: SparkSession,
    table: str,
    *,
    group: str | None,
    cluster: str | None = None,
    since: Since,
    clients: KafkaOptions | None,
    made_at: datetime,
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

    Raises:
        TableRefused, StoreFailed: the table cannot be used.
        NothingToReport: it has no failure of the group, or of the cluster.
        UnknownRelease: no failure names the release.
        KafkaUnreachable: the commits can't be read.
    """
    failures = read_failures(spark, table)
    with readable_store_errors(table):
        failures = narrowed(failures, cluster, table)
        if group is not None:
            found = failures.where("`group` is not null").select("group").distinct().collect()
            groups = sorted(row["group"] for row in found)
            if group not in groups:
                named = ", ".join(groups) or "none"
                raise NothingToReport(
                    f"table {table}: no failure of group {group!r}; it has {named}"
                )
            failures = failures.where(F.col("group") == group)
        commits = None if clients is None else partial(committed_for, clients)
        made = build_report(failures, commits, table=table, since=since, made_at=made_at)
        return replace(made, erased=_erased(spark, table, made_at))


def _erased(spark: SparkSession, table: str, made_at: datetime) -> tuple[Erased, ...]:
    """What was erased on request lately."""
    notes = notes_since(spark, table, made_at - _ERASURES_SAID)
    return tuple(
        Erased(datetime.fromisoformat(note.at), note.by, note.rows, note.messages, note.done)
        for note in notes
    )
