"""Collect the report: the one place that makes Spark work on it.

The events are read once and kept in memory while everything else is counted from them; the lives,
a row per message, likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ackfloor_monitoring.spark.errors import NothingToReport, UnknownRelease
from ackfloor_monitoring.spark.report import causes, lives
from ackfloor_monitoring.spark.report.answer import Bucket, FailureGroup, Report, Sample, Totals
from ackfloor_monitoring.spark.report.commits import GroupCommit, commit_rows
from ackfloor_monitoring.spark.report.events import COMMIT, events
from ackfloor_monitoring.spark.report.shares import (
    handler_rows,
    key_rows,
    partition_rows,
    replay_rows,
    steps,
    time_rows,
    traffic_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

# Groups of failures that are listed; a month of a large system has a few hundred.
MOST_GROUPS = 500
MOST_KEYS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The longest period that each length of a stretch is for, in seconds.
_BUCKETS = ((3 * 3_600, 300), (14 * 3_600, 1_800), (2 * 86_400, 3_600), (8 * 86_400, 6 * 3_600))
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Since:
    """From when on something is new: a time, a release, or neither: the last day of the table."""

    time: datetime | None = None
    release: str | None = None


def build_report(
    failures: DataFrame,
    commits: Iterable[GroupCommit] | None,
    *,
    table: str,
    since: Since,
    made_at: datetime,
) -> Report:
    """Count everything.

    Args:
        failures: rows of the table `failures`.
        commits: of the groups' tiers; None where they are not known.
        table: what the report calls the table.

    Raises:
        NothingToReport: there is no row, or no failure among them.
        UnknownRelease: no failure names the release.
    """
    rows, refused = commit_rows(commits or ())
    known = failures.sparkSession.createDataFrame(rows, COMMIT)
    with _kept(events(failures, known)) as seen:
        total = causes.totals(seen).first()
        assert total is not None, "an aggregate without groups has one row"
        if not total["failures"]:
            raise NothingToReport(f"{table}: {total['records']} rows and no failure among them")
        new_since = _new_since(seen, since, _time(total["last"]))
        bucket_ms = 1000 * _bucket_s((total["last"] - total["first"]) / 1000)
        starts = _starts(total["first"], total["last"], bucket_ms)
        groups = _groups(causes.failure_groups(seen, bucket_ms), starts, total["failures"])
        with _kept(lives.lives(seen)) as lived, _kept(lives.messages(lived)) as messages:
            ended = lives.endings(lived).collect()
            placed = lives.partitions(messages).collect()
            return Report(
                made_at=made_at,
                table=table,
                groups=tuple(total["groups"]),
                first=_time(total["first"]),
                last=_time(total["last"]),
                commits_known=commits is not None,
                commits_refused=refused,
                totals=_totals(total, placed),
                bucket_s=bucket_ms // 1000,
                buckets=tuple(map(_time, starts)),
                over_time=_over_time(causes.over_time(seen, bucket_ms)),
                failure_groups=groups[:MOST_GROUPS],
                failure_groups_left_out=max(0, len(groups) - MOST_GROUPS),
                since=new_since,
                since_release=since.release,
                new=tuple(group for group in groups if group.first >= new_since),
                funnel=steps(ended, lives.tiers(seen).collect()),
                times=time_rows(lives.times(lived).collect()),
                hot_keys=key_rows(lives.hot_keys(messages, MOST_KEYS).collect(), total["failures"]),
                hot_partitions=partition_rows(placed),
                traffic=traffic_rows(placed),
                handlers=handler_rows(causes.handlers(seen).collect(), ended),
                replays=replay_rows(ended),
            )


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """In memory while it is needed."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _new_since(seen: DataFrame, since: Since, last: datetime) -> datetime:
    if since.release is None:
        return since.time or last - timedelta(days=1)
    began = {row["release"]: _time(row["first"]) for row in causes.releases(seen).collect()}
    if since.release not in began:
        known = ", ".join(sorted(began, key=lambda name: began[name])[-20:]) or "none at all"
        raise UnknownRelease(
            f"--since-release {since.release!r}: no failure names it; the table knows {known}"
        )
    return began[since.release]


def _totals(total: Row, placed: Sequence[Row]) -> Totals:
    counted = ("records", "failures", "hops", "replays", "without_origin", "unreadable")
    return Totals(
        **{name: total[name] for name in counted},
        **{name: sum(row[name] for row in placed) for name in ("messages", *lives.OUTCOMES)},
    )


def _over_time(frame: DataFrame) -> tuple[Bucket, ...]:
    rows = frame.orderBy("start", "group", "handler", "reason").collect()
    return tuple(
        Bucket(_time(row["start"]), row["group"], row["handler"], row["reason"], row["failures"])
        for row in rows
    )


def _groups(frame: DataFrame, starts: list[int], total: int) -> tuple[FailureGroup, ...]:
    """All of them, most failures first."""
    found = [_group(row, starts, total) for row in frame.collect()]
    order = sorted(found, key=lambda g: (-g.failures, g.group or "", g.handler or "", g.cause))
    return tuple(order)


def _group(row: Row, starts: list[int], total: int) -> FailureGroup:
    named: dict[str, Any] = {
        name: row[name]
        for name in (
            "group", "handler", "cause", "fingerprint", "error_type", "failures", "dead"
        )
    }  # fmt: skip
    return FailureGroup(
        **named,
        share=row["failures"] / total,
        first=_time(row["first"]),
        last=_time(row["last"]),
        releases=tuple(row["releases"]),
        trend=tuple(row["trend"].get(start, 0) for start in starts),
        sample=Sample(**row["sample"].asDict()),
    )


def _bucket_s(period_s: float) -> int:
    return next((bucket for longest, bucket in _BUCKETS if period_s <= longest), _DAY_S)


def _starts(first_ms: int, last_ms: int, bucket_ms: int) -> list[int]:
    return list(range(first_ms - first_ms % bucket_ms, last_ms + 1, bucket_ms))


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
