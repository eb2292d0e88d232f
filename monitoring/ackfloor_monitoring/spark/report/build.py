"""Build the report: the one place that runs its Spark jobs.

Only sums come to Python. Independent parts are counted at the same time: alone, each leaves a core
idle while it is planned and compiled, and while its last task runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ackfloor.commits import Settled
from ackfloor_monitoring.spark.report import lives, sums
from ackfloor_monitoring.spark.report.answer import (
    Bucket,
    FailureGroup,
    FarRecord,
    Report,
    Sample,
    Totals,
)
from ackfloor_monitoring.spark.report.counts import moment
from ackfloor_monitoring.spark.report.kept.figures import Figures, RowFigures
from ackfloor_monitoring.spark.report.parts import (
    handler_rows,
    key_rows,
    partition_rows,
    replay_rows,
    steps,
    time_rows,
    traffic_rows,
    with_replays,
)
from ackfloor_monitoring.spark.report.sums import Sums
from ackfloor_monitoring.spark.report.time_axis import Period
from ackfloor_monitoring.spark.spark_errors import NothingToReport, UnknownRelease

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Groups of failures that are listed; a month of a large system has a few hundred.
MOST_GROUPS = 500
MOST_KEYS = 50
# Records that lie far from all others, by name.
MOST_FAR = 10
# What groups have committed for their retry topics, by group.
Commits = Callable[[Mapping[str, Sequence[str]]], Sequence[Settled]]


@dataclass(frozen=True, slots=True)
class Since:
    """From when on something is new: a time, a release, or neither: the last day of the table."""

    time: datetime | None = None
    release: str | None = None


def build_report(
    failures: DataFrame,
    commits: Commits | None,
    *,
    table: str,
    since: Since,
    made_at: datetime,
) -> Report:
    """Count everything, from the rows of the table `failures`, as `report_of`."""
    figures = RowFigures(failures)
    return report_of(figures, commits, table=table, since=since, made_at=made_at)


def report_of(
    figures: Figures,
    commits: Commits | None,
    *,
    table: str,
    since: Since,
    made_at: datetime,
) -> Report:
    """Sum up the figures.

    Args:
        figures: of all rows that are reported on.
        commits: reads those of the groups' tiers; None where they are not known.
        table: the table's name in the report.
        since: from when on something is new.
        made_at: now.

    Raises:
        NothingToReport: there is no row, or no failure among them.
        UnknownRelease: no failure names the release.
    """
    with ThreadPoolExecutor(thread_name_prefix="report") as pool:
        calls = pool.submit(figures.durations)
        seen = figures.overview(made_at)
        if not seen.records:
            raise NothingToReport(f"{table}: there is no row in it")
        axis = seen.period
        starts = axis.starts
        counting = pool.submit(figures.counts, axis)
        known = None if commits is None else commits(seen.tiers)
        with figures.lives(axis, known) as lived:
            outcome_counts = lived.outcome_counts()
            counted = counting.result()
            total = sums.totals(counted)
            if not total["failures"]:
                raise NothingToReport(f"{table}: {seen.records} rows and no failure among them")
            new_since = _new_since(counted, since, moment(axis.last_ms))
            # Nothing is refused from here on, so no job runs in vain.
            placing = pool.submit(lived.partitions)
            heating = pool.submit(lived.hot_keys, MOST_KEYS)
            read_by = sums.topic_handlers(counted)
            any_again = any(row["replayed"] for row in outcome_counts)
            healing = pool.submit(lived.replays_by_cause) if any_again else None
            timing = pool.submit(lived.times, read_by)
            causes = with_replays(sums.failure_groups(counted), healing.result() if healing else ())
            groups = _groups(figures, causes, starts, total["failures"])
            placed, times, hot_keys = placing.result(), timing.result(), heating.result()
        took = calls.result()
    of_topic = {(row["group"], row["origin_topic"]): row["handler"] for row in read_by.to_pylist()}
    return Report(
        made_at=made_at,
        table=table,
        groups=seen.groups,
        first=moment(axis.first_ms),
        last=moment(axis.last_ms),
        commits_known=known is not None,
        commits_refused=sum(each.refused != "" for each in known or ()),
        totals=_totals(total, placed),
        bucket_s=axis.stretch_ms // 1000,
        buckets=tuple(map(moment, starts)),
        over_time=_over_time(sums.over_time(counted)),
        failure_groups=groups[:MOST_GROUPS],
        failure_groups_left_out=max(0, len(groups) - MOST_GROUPS),
        since=new_since,
        since_release=since.release,
        new=tuple(group for group in groups if group.first >= new_since),
        funnel=steps(outcome_counts, sums.tiers(counted), of_topic),
        times=time_rows(times),
        hot_keys=key_rows(hot_keys, total["failures"]),
        hot_partitions=partition_rows(placed),
        traffic=traffic_rows(placed),
        handlers=handler_rows(sums.handlers(counted), took, outcome_counts, of_topic),
        replays=replay_rows(outcome_counts, of_topic),
        days_counted=len({each.day for each in seen.days}),
        far_records=seen.outside(axis),
        far=_far(figures, axis) if seen.outside(axis) else (),
    )


def _new_since(counted: pa.Table, since: Since, last: datetime) -> datetime:
    if since.release is None:
        return since.time or last - timedelta(days=1)
    began = sums.releases(counted)
    if since.release not in began:
        known = ", ".join(sorted(began, key=lambda name: began[name])[-20:]) or "none at all"
        raise UnknownRelease(
            f"--since-release {since.release!r}: no failure names it; the table knows {known}"
        )
    return moment(began[since.release])


def _totals(total: Mapping[str, int], placed: Sequence[Sums]) -> Totals:
    return Totals(
        **total,
        **{name: sum(row[name] for row in placed) for name in ("messages", *lives.OUTCOMES)},
    )


def _over_time(rows: Sequence[Sums]) -> tuple[Bucket, ...]:
    return tuple(
        Bucket(moment(row["start"]), row["group"], row["handler"], row["reason"], row["failures"])
        for row in rows
    )


def _groups(
    figures: Figures, rows: Sequence[Sums], starts: Sequence[int], total: int
) -> tuple[FailureGroup, ...]:
    """All of them, most failures first.

    Args:
        rows: from `parts.with_replays`.
    """
    samples: dict[tuple[object, ...], Sample] = {}
    for row in figures.samples({row["last"] for row in rows}):
        latest = (row["group"], row["handler"], row["cause"], row["at_ms"])
        samples.setdefault(
            latest, Sample(row["topic"], row["partition"], row["offset"], row["error_message"])
        )
    found = [_group(row, starts, total, samples) for row in rows]
    order = sorted(found, key=lambda g: (-g.failures, g.group or "", g.handler or "", g.cause))
    return tuple(order)


def _group(
    row: Sums, starts: Sequence[int], total: int, samples: Mapping[tuple[object, ...], Sample]
) -> FailureGroup:
    named: dict[str, Any] = {
        name: row[name]
        for name in (
            "group", "handler", "cause", "fingerprint", "error_type", "failures", "dead",
            "replayed", "healed",
        )
    }  # fmt: skip
    return FailureGroup(
        **named,
        share=row["failures"] / total,
        first=moment(row["first"]),
        last=moment(row["last"]),
        releases=tuple(row["releases"]),
        trend=tuple(row["trend"].get(start, 0) for start in starts),
        sample=samples[row["group"], row["handler"], row["cause"], row["last"]],
    )


def _far(figures: Figures, axis: Period) -> tuple[FarRecord, ...]:
    """The records that lie furthest from the period."""
    return tuple(
        FarRecord(
            row["group"], row["handler"], row["topic"], row["partition"], row["offset"],
            moment(row["at_ms"]), moment(row["written_ms"]),
        )
        for row in figures.outside(axis, MOST_FAR)
    )  # fmt: skip
