"""Collect the report: the one place that makes Spark work on it.

The counts are kept in memory while the parts of the report are summed up from them, and so are the
lives, a row each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ackfloor_monitoring.spark.errors import NothingToReport, UnknownRelease
from ackfloor_monitoring.spark.report import counts, lives
from ackfloor_monitoring.spark.report.answer import Bucket, FailureGroup, Report, Sample, Totals
from ackfloor_monitoring.spark.report.shares import (
    handler_rows,
    key_rows,
    partition_rows,
    replay_rows,
    steps,
    time_rows,
    traffic_rows,
)
from ackfloor_monitoring.spark.settled import commit_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from ackfloor.commits import Settled

# Groups of failures that are listed; a month of a large system has a few hundred.
MOST_GROUPS = 500
MOST_KEYS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The longest period that each length of a stretch is for, in seconds.
_BUCKETS = (
    (300, 5), (1_800, 60), (3 * 3_600, 300), (14 * 3_600, 1_800), (2 * 86_400, 3_600),
    (8 * 86_400, 6 * 3_600),
)  # fmt: skip
_DAY_S = 86_400
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True, slots=True)
class Since:
    """From when on something is new: a time, a release, or neither: the last day of the table."""

    time: datetime | None = None
    release: str | None = None


def build_report(
    failures: DataFrame,
    commits: Sequence[Settled] | None,
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
    whole = counts.period(failures).first()
    assert whole is not None, "an aggregate without groups has one row"
    if not whole["records"]:
        raise NothingToReport(f"{table}: there is no row in it")
    bucket_ms = 1000 * bucket_s((whole["last"] - whole["first"]) / 1000)
    spark = failures.sparkSession
    known = commit_frame(spark, commits or ())
    with (
        _kept(counts.counts(failures, bucket_ms)) as counted,
        _kept(lives.lives(failures, known)) as lived,
    ):
        # Cheaper to sum up twice than to keep.
        messages = lives.messages(lived)
        with _interpreted(spark):
            total = counts.totals(counted).first()
            if total is None or not total["failures"]:
                raise NothingToReport(f"{table}: {whole['records']} rows and no failure among them")
            new_since = _new_since(counted, since, _time(whole["last"]))
            starts = _starts(whole["first"], whole["last"], bucket_ms)
            causes = counts.failure_groups(counted).collect()
            read_by = counts.topic_handlers(counted).collect()
            over_time = _over_time(counts.over_time(counted))
            tiers = counts.tiers(counted).collect()
            by_handler = counts.handlers(counted).collect()
        groups = _groups(failures, causes, starts, total["failures"])
        of_topic = {(row["group"], row["origin_topic"]): row["handler"] for row in read_by}
        handlers = spark.createDataFrame(read_by, counts.TOPIC_HANDLER)
        ended = lives.endings(lived).collect()
        placed = lives.partitions(messages).collect()
        return Report(
            made_at=made_at,
            table=table,
            groups=tuple(total["groups"]),
            first=_time(whole["first"]),
            last=_time(whole["last"]),
            commits_known=commits is not None,
            commits_refused=sum(each.refused != "" for each in commits or ()),
            totals=_totals(total, placed),
            bucket_s=bucket_ms // 1000,
            buckets=tuple(map(_time, starts)),
            over_time=over_time,
            failure_groups=groups[:MOST_GROUPS],
            failure_groups_left_out=max(0, len(groups) - MOST_GROUPS),
            since=new_since,
            since_release=since.release,
            new=tuple(group for group in groups if group.first >= new_since),
            funnel=steps(ended, tiers, of_topic),
            times=time_rows(lives.times(lived, handlers).collect()),
            hot_keys=key_rows(lives.hot_keys(messages, MOST_KEYS).collect(), total["failures"]),
            hot_partitions=partition_rows(placed),
            traffic=traffic_rows(placed),
            handlers=handler_rows(
                by_handler,
                counts.durations(failures).collect(),
                ended,
                of_topic,
            ),
            replays=replay_rows(ended, of_topic),
        )


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """In memory while it is needed."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


@contextmanager
def _interpreted(spark: SparkSession) -> Iterator[None]:
    """What is planned meanwhile is not compiled: right for sums over some thousand rows.

    To compile a query takes longer than to go through such a handful in an interpreter.
    """
    before = {name: str(spark.conf.get(name)) for name in _INTERPRETED}
    try:
        for name, value in _INTERPRETED.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _new_since(counted: DataFrame, since: Since, last: datetime) -> datetime:
    if since.release is None:
        return since.time or last - timedelta(days=1)
    began = {row["release"]: _time(row["first"]) for row in counts.releases(counted).collect()}
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


def _groups(
    failures: DataFrame, rows: Sequence[Row], starts: list[int], total: int
) -> tuple[FailureGroup, ...]:
    """All of them, most failures first.

    Args:
        rows: of `counts.failure_groups`.
    """
    places = {(row["group"], row["handler"], row["cause"]): row["last"] for row in rows}
    wanted = failures.sparkSession.createDataFrame(
        [(*place, last) for place, last in places.items()],
        "`group` string, handler string, cause string, last long",
    )
    samples: dict[tuple[object, ...], Sample] = {}
    # Of several, the first record: the others are its hops.
    told = counts.samples(failures, wanted).orderBy("kafka_time", "topic", "partition", "offset")
    for row in told.collect():
        group, handler, cause, _, *sample = row
        samples.setdefault((group, handler, cause), Sample(*sample))
    found = [_group(row, starts, total, samples) for row in rows]
    order = sorted(found, key=lambda g: (-g.failures, g.group or "", g.handler or "", g.cause))
    return tuple(order)


def _group(
    row: Row, starts: list[int], total: int, samples: Mapping[tuple[object, ...], Sample]
) -> FailureGroup:
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
        sample=samples[row["group"], row["handler"], row["cause"]],
    )


def bucket_s(period_s: float) -> int:
    """The length of a stretch of time that a period is shown in, in seconds."""
    return next((bucket for longest, bucket in _BUCKETS if period_s <= longest), _DAY_S)


def _starts(first_ms: int, last_ms: int, bucket_ms: int) -> list[int]:
    return list(range(first_ms - first_ms % bucket_ms, last_ms + 1, bucket_ms))


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
