"""The report's figures against an independent count of the same month of failures."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from ackfloor import RetryPolicy
from ackfloor.commits import Settled
from ackfloor_monitoring.spark.audit.audit_job import audit
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.spark_errors import UnknownRelease
from ackfloor_monitoring.spark.table.table_frames import with_derived
from ackfloor_monitoring.spark.whatif.build import what_if
from benchmarks.failures.month import Month
from benchmarks.failures.rows import write_parquet
from tests.monitoring.spark.failure_rows import dead, frame
from tests.monitoring.spark.report.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SINCE = datetime(2026, 10, 20, tzinfo=UTC)


@dataclass(frozen=True)
class Told:
    """The same month, counted twice."""

    failures: DataFrame
    commits: list[Settled]
    report: Report
    oracle: Oracle


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A small month, with every kind of failure in it."""
    folder = tmp_path_factory.mktemp("month") / "failures"
    month = Month(1_500, seed=5)
    write_parquet(month, folder)
    commits = [each.settled() for each in month.commits()]
    failures = spark.read.parquet(str(folder))
    report = build_report(
        failures, lambda _: commits, table="month", since=Since(SINCE), made_at=NOW
    )
    rows = pd.read_parquet(folder)
    return Told(failures, commits, report, Oracle(rows, open_records(rows, commits)))


def open_records(rows: pd.DataFrame, commits: list[Settled]) -> set[tuple[str, int, int]]:
    """The tier records that no commit settles."""
    settled: dict[tuple[str, int], set[int]] = {}
    for each in commits:
        assert not each.refused
        above = {offset for start, end in each.runs for offset in range(start, end)}
        settled[each.topic, each.partition] = above | set(range(each.position))
    tiers = rows[rows.stage == "retry"]
    places = zip(tiers.topic, tiers.partition, tiers.offset, strict=True)
    return {(t, p, o) for t, p, o in places if o not in settled[t, p]}


def test_totals(told: Told) -> None:
    """Records of each kind, and what became of the messages."""
    totals, oracle = told.report.totals, told.oracle
    assert (totals.records, totals.failures) == (len(oracle.rows), len(oracle.failed))
    assert (totals.hops, totals.replays) == tuple(map(oracle.kinds.count, ("hop", "replay")))
    ended = oracle.outcomes()
    assert min(ended["recovered"], ended["dead"], ended["waiting"], totals.hops, totals.replays) > 0
    assert (totals.recovered, totals.dead, totals.waiting, totals.unknown) == (
        ended["recovered"], ended["dead"], ended["waiting"], 0
    )  # fmt: skip
    assert totals.messages == ended.total()


def test_failures_over_time(told: Told) -> None:
    """By day, handler and reason; the days leave out none between the first and the last."""
    report = told.report
    assert report.bucket_s == 86_400
    assert {b: b - a for a, b in zip(report.buckets, report.buckets[1:], strict=False)} == {
        b: timedelta(days=1) for b in report.buckets[1:]
    }
    counted = {(b.start, b.group, b.handler, b.reason): b.failures for b in report.over_time}
    assert counted == told.oracle.over_time()
    assert {b.start for b in report.over_time} <= set(report.buckets)


def test_failure_groups(told: Told) -> None:
    """Counts, share, first and last seen, releases, trend; the sample is one of them."""
    expected = told.oracle.groups()
    found = told.report.failure_groups
    assert {(g.group, g.handler, g.cause) for g in found} == set(expected)
    for group in found:
        rows = expected[group.group, group.handler, group.cause]
        assert group.failures == len(rows)
        assert group.dead == (rows.stage == "dlq").sum()
        assert group.share == pytest.approx(len(rows) / len(told.oracle.failed))
        assert (group.first, group.last) == (rows.event_time.min(), rows.event_time.max())
        assert set(group.releases) == set(rows.release)
        days = rows.event_time.dt.floor("D").value_counts()
        assert group.trend == tuple(int(days.get(day, 0)) for day in told.report.buckets)
        sample = rows[(rows.topic == group.sample.topic) & (rows.offset == group.sample.offset)
                      & (rows.partition == group.sample.partition)]  # fmt: skip
        assert list(sample.event_time) == [rows.event_time.max()]
        assert list(sample.error_message) == [group.sample.error_message]
    assert [g.failures for g in found] == sorted((g.failures for g in found), reverse=True)


def test_what_replays_healed_is_told_by_cause(told: Told) -> None:
    """Of the cause of the dead letter that was replayed, whatever its next life died of."""
    expected = told.oracle.healed()
    found = {
        (g.group, g.handler, g.cause): (g.replayed, g.healed)
        for g in told.report.failure_groups
        if g.replayed
    }
    assert found == expected
    assert sum(healed for _, healed in found.values()) > 0
    assert sum(replayed for replayed, _ in found.values()) <= sum(
        r.replayed for r in told.report.replays
    )


def test_new_since_a_time(told: Told) -> None:
    """A cause is new when it was first seen at that time or later."""
    expected = {who for who, rows in told.oracle.groups().items() if rows.event_time.min() >= SINCE}
    assert 0 < len(expected) < len(told.oracle.groups())
    assert {(g.group, g.handler, g.cause) for g in told.report.new} == expected


def test_the_funnel(told: Told) -> None:
    """Each step loses what was saved, died or waits; the rest fails once more."""
    ended = told.oracle.ended()
    for step in told.report.funnel:
        who = step.group, step.handler
        assert (step.recovered, step.dead, step.waiting, step.unknown) == tuple(
            ended[*who, step.attempt, name] for name in ("recovered", "dead", "waiting", "unknown")
        )
        reached = {k: n for k, n in ended.items() if k[:2] == who and k[2] >= step.attempt}
        assert step.failed == sum(reached.values())
    assert sum(s.recovered + s.dead + s.waiting for s in told.report.funnel) == ended.total()
    bill = [step.tiers for step in told.report.funnel if step.handler == "bill"]
    assert bill == [("1s",), ("5s",), ("25s",), ("125s",), ("10m",), ("10m",), ()]


def test_times(told: Told) -> None:
    """Percentiles of the time to recover and the time to death."""
    recovered, dead = told.oracle.times("recovered"), told.oracle.times("dead")
    for row in told.report.times:
        who = row.group, row.handler
        for number, spread, expected in (
            (row.recovered_messages, row.to_recover_s, recovered.get(who)),
            (row.dead_messages, row.to_death_s, dead.get(who)),
        ):
            assert (number, spread is None) == (expected[0] if expected else 0, expected is None)
            if expected is not None:
                assert spread == pytest.approx(expected[1])
    assert {(row.group, row.handler) for row in told.report.times} == recovered.keys() | dead.keys()


def test_hot_keys_and_partitions(told: Told) -> None:
    """The keys with the most failures, hottest first, and every partition's failures."""
    keys = told.oracle.keys()
    found = told.report.hot_keys
    assert [k.failures for k in found] == [n for _, n in keys.most_common(len(found))]
    assert all(keys[k.group, k.topic, k.key.encode()] == k.failures for k in found)
    expected = told.oracle.partitions()
    for each in told.report.hot_partitions:
        failures, times_average = expected[each.group, each.topic, each.partition]
        assert each.failures == failures
        assert each.times_average == pytest.approx(times_average)
    assert len(told.report.hot_partitions) == len(expected)


def test_traffic_handlers_and_replays(told: Told) -> None:
    """What retries cost, who is slow, what was seen twice, and what replays brought."""
    seen = {(t.group, t.topic): (t.input, t.tier_records) for t in told.report.traffic}
    assert seen == told.oracle.traffic()
    assert all(t.multiple == t.tier_records / t.input for t in told.report.traffic)
    expected, doubled = told.oracle.handlers(), told.oracle.duplicates()
    assert doubled.total() > 0
    for each in told.report.handlers:
        timeouts, errors, took = expected[each.group, each.handler]
        assert (each.timeouts, each.errors) == (timeouts, errors)
        assert each.duplicates == doubled[each.group, each.handler]
        assert each.duration_s == pytest.approx(took)
    assert len(told.report.handlers) == len(expected)
    replayed = {
        (r.group, r.handler, name): number
        for r in told.report.replays
        for name in ("recovered", "dead", "waiting", "unknown")
        if (number := getattr(r, name))
    }
    assert replayed == dict(told.oracle.replayed())


def test_without_commits_nothing_is_said_to_have_recovered(told: Told) -> None:
    """What is not dead is then unknown; a release that nobody knows is refused with those known."""
    report = build_report(
        told.failures.where("group = 'mail'"), None, table="month",
        since=Since(release="0.9.5"), made_at=NOW,
    )  # fmt: skip
    assert not report.commits_known
    assert (report.totals.recovered, report.totals.waiting) == (0, 0)
    assert report.totals.unknown == report.totals.messages - report.totals.dead > 0
    assert report.since == min(told.oracle.failed.query("release == '0.9.5'").event_time)
    assert {g.sample.error_message for g in report.new} >= {
        "429 from the provider, try again in 7 minutes"
    }
    with pytest.raises(UnknownRelease, match=r"'9\.9'.*0\.9\.4, 0\.9\.5"):
        build_report(
            told.failures.where("group = 'mail'"), None, table="month",
            since=Since(release="9.9"), made_at=NOW,
        )  # fmt: skip


def test_what_waits_behind_another_record_did_not_fail(spark: SparkSession, told: Told) -> None:
    """It is counted among the records, under its reason, and changes nothing else that is told."""
    at, later = SINCE, SINCE + timedelta(days=3650)
    base = {
        "event_time": at, "kafka_time": at, "day": at.date(), "group": "mail",
        "handler": "send_receipt", "origin_topic": "receipts", "origin_partition": 0,
        "replays": None, "attempt": 0, "error_type": None, "key": b"k",
    }  # fmt: skip
    waits = base | {
        "topic": "receipts--mail--retry-1s", "stage": "retry", "tier": "1s", "not_before": at,
        "retry_at": later,
    }  # fmt: skip
    rows = [
        dead(1, **waits, reason="behind", origin_offset=1),
        dead(2, **waits | {"kafka_time": at + timedelta(seconds=5)}, reason="behind",
             origin_offset=1),
        dead(3, **waits, reason="held", origin_offset=2),
        dead(4, **waits | {"replays": 1}, reason="behind", origin_offset=3),
        dead(5, **base | {"topic": "receipts--mail--dlq"}, reason="behind", origin_offset=4),
    ]  # fmt: skip
    more = told.failures.unionByName(frame(spark, rows))
    report = build_report(
        more, lambda _: told.commits, table="month", since=Since(SINCE), made_at=NOW
    )
    before = told.report
    totals = replace(before.totals, records=before.totals.records + len(rows), behind=len(rows))
    assert report == replace(before, totals=totals)


def test_a_message_is_counted_alike_everywhere(spark: SparkSession, told: Told) -> None:
    """By the column of the table in SQL, by the report, by the audit and by what-if."""
    rows = with_derived(told.failures)
    counted = rows.where("kind <> 'behind'").selectExpr("count(DISTINCT message)").collect()
    audited = audit(spark, told.failures, None, grace_s=300, most=1)
    replayed = what_if(told.failures, told.commits, RetryPolicy(), table="month")
    assert {counted[0][0], audited.messages, replayed.messages} == {told.report.totals.messages}
    kinds = {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}
    totals = told.report.totals
    assert kinds == {"failure": totals.failures + totals.hops, "replay": totals.replays}


def test_a_wrong_clock_changes_no_axis(spark: SparkSession, told: Told) -> None:
    """Failures of 1970 and 2090 count and are named; charts and times are as without them."""
    cause = told.report.failure_groups[0]
    base = {
        "group": cause.group, "handler": cause.handler, "error_type": cause.error_type,
        "error_fingerprint": cause.fingerprint, "release": "0.9.5", "kafka_time": SINCE,
        "origin_topic": "receipts", "origin_partition": 0, "key": b"k", "replays": None,
        "first_failed_at": SINCE,
    }  # fmt: skip
    early, late = datetime(1970, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    rows = [
        dead(1, **base | {"event_time": early, "day": early.date()}, origin_offset=10**9),
        dead(2, **base | {"event_time": late, "day": late.date()}, origin_offset=10**9 + 1),
        dead(3, **base | {"event_time": cause.first, "day": cause.first.date(),
                          "first_failed_at": late}, origin_offset=10**9 + 2, attempt=None),
    ]  # fmt: skip
    report = build_report(
        told.failures.unionByName(frame(spark, rows)), lambda _: told.commits, table="month",
        since=Since(SINCE), made_at=NOW,
    )  # fmt: skip
    before = told.report
    for name in ("first", "last", "bucket_s", "buckets", "since", "times"):
        assert getattr(report, name) == getattr(before, name), name
    assert report.totals.failures == before.totals.failures + 3
    assert sum(b.failures for b in report.over_time) == before.totals.failures + 1
    (changed,) = [g for g in report.failure_groups if g.cause == cause.cause]
    assert (changed.failures, changed.first, changed.last) == (
        cause.failures + 3, cause.first, cause.last
    )  # fmt: skip
    assert {g.cause for g in report.new} == {g.cause for g in before.new}
    assert min(step.attempt for step in report.funnel) == 1
    assert report.far_records == 2
    assert [(far.offset, far.failed_at, far.written_at) for far in report.far] == [
        (2, late, SINCE), (1, early, SINCE)
    ]  # fmt: skip


def test_json_is_the_whole_report(told: Told) -> None:
    """Every part is in the JSON, times as text in UTC."""
    read = json.loads(told.report.to_json())
    assert read["made_at"] == "2026-11-01T00:00:00.000Z"
    assert set(read) == set(Report.__slots__)
    assert len(read["failure_groups"]) == len(told.report.failure_groups)
