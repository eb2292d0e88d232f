"""The views and the notebook's functions against the report of the same month of failures."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ackfloor import RetryPolicy
from ackfloor.commits import Settled
from ackfloor_monitoring.spark import notebook
from ackfloor_monitoring.spark.analysis import views as named_views
from ackfloor_monitoring.spark.analysis.view_columns import COMPUTED, NEW_CAUSE
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.build import Since, build_report
from ackfloor_monitoring.spark.spark_errors import TableRefused
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.columns import DERIVED, FAILURE
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION
from ackfloor_monitoring.spark.table.table_frames import with_derived
from benchmarks.failures.month import Month
from benchmarks.failures.rows import write_parquet
from tests.monitoring.spark.failure_rows import NOON, dead, frame

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ORIGIN: dict[str, Any] = {"origin_topic": "orders", "origin_partition": 0, "origin_offset": 5}


@dataclass(frozen=True)
class Counted:
    """A month, and the report on it."""

    failures: DataFrame
    commits: list[Settled]
    report: Report


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """A small month, with every kind of failure in it."""
    folder = tmp_path_factory.mktemp("month") / "failures"
    month = Month(600, seed=7)
    write_parquet(month, folder)
    commits = [each.settled() for each in month.commits()]
    failures = with_derived(spark.read.parquet(str(folder)))
    report = build_report(failures, lambda _: commits, table="month", since=Since(), made_at=NOW)
    return Counted(failures, commits, report)


def rows_of(found: DataFrame, *by: str) -> Mapping[tuple[object, ...], Any]:
    """Rows by what tells them apart."""
    rows = found.collect()
    keyed = {tuple(row[name] for name in by): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def utc(value: datetime) -> datetime:
    """A time that Spark gave to Python in Python's own zone."""
    return datetime.fromtimestamp(value.timestamp(), UTC)


def test_deliveries_are_the_failures_of_the_report(counted: Counted) -> None:
    """Each once, however many retry topics it waited in; by handler and by key as well."""
    totals = counted.report.totals
    assert totals.hops > 0
    assert totals.replays > 0
    found = notebook.deliveries(counted.failures).collect()
    assert len(found) == totals.failures
    assert sum(row.records for row in found) == totals.failures + totals.hops
    assert Counter((row.group, row.handler) for row in found) == {
        (each.group, each.handler): each.errors + each.timeouts for each in counted.report.handlers
    }
    keys = Counter((row.group, row.origin_topic, bytes(row.key)) for row in found if row.message)
    for each in counted.report.hot_keys:
        assert keys[each.group, each.topic, each.key.encode()] == each.failures


def test_fingerprints_are_those_of_the_report(counted: Counted) -> None:
    """Each cause, with each of its numbers and its latest record."""
    found = rows_of(notebook.fingerprints(counted.failures), "group", "handler", "cause")
    assert len(found) == len(counted.report.failure_groups) > 5
    for group in counted.report.failure_groups:
        row = found[group.group, group.handler, group.cause]
        assert (row.fingerprint, row.error_type) == (group.fingerprint, group.error_type)
        assert (row.failures, row.dead) == (group.failures, group.dead)
        assert (utc(row["first"]), utc(row["last"])) == (group.first, group.last)
        assert tuple(row.releases) == group.releases
        assert row.sample.error_message == group.sample.error_message
        assert 0 < row.messages <= row.failures


def test_costs_are_the_time_of_calls_and_of_waits(spark: SparkSession) -> None:
    """Of each failure its call and its wait, further waits of one delay once; not of replays, and
    no wait that a wrong clock tells."""

    def parked(offset: int, due_s: float, **more: Any) -> dict[str, Any]:
        waits = {"stage": "retry", "tier": "5s", "not_before": NOON + timedelta(seconds=due_s)}
        return dead(offset, **{**ORIGIN, **waits, "attempt": 1, "duration_ms": 250, **more})

    explicit = {"retry_at": NOON + timedelta(seconds=90), "attempt": 2, "origin_offset": 9}
    rows = [
        parked(0, 5),
        parked(1, 60, **explicit),
        parked(2, 90, **explicit),  # the rest of the same wait
        parked(3, 5, replays=1, attempt=0),
        parked(4, -3_000, origin_offset=7, duration_ms=None),
        parked(5, 5_000_000_000, origin_offset=8),
        dead(6, duration_ms=1_500, origin_offset=10),
    ]
    [row] = notebook.costs(frame(spark, rows)).collect()
    assert (row.handler, row.cause, row.failures) == ("bill", "shop.Boom", 5)
    assert (row.handler_s, row.untimed, row.delay_s) == (2.25, 1, 95.0)


def test_the_funnel_is_that_of_the_report(counted: Counted) -> None:
    """Step by step, with commits; without them nothing is known of what did not die."""
    found = rows_of(
        notebook.funnel(counted.failures, counted.commits), "group", "handler", "attempt"
    )
    assert {key: tuple(row[3:]) for key, row in found.items()} == {
        (step.group, step.handler, step.attempt): (
            step.failed, step.recovered, step.dead, step.waiting, step.unknown
        )
        for step in counted.report.funnel
    }  # fmt: skip
    blind = notebook.funnel(counted.failures).collect()
    assert sum(row.recovered + row.waiting for row in blind) == 0
    assert sum(row.dead for row in blind) == sum(row.dead for row in found.values())


def test_the_funnel_by_cause_is_the_funnel_taken_apart(counted: Counted) -> None:
    """The causes of a step add up to it, and each has the messages that failed with it last."""
    steps, ends = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for row in notebook.funnel_by_cause(counted.failures, counted.commits).collect():
        steps[row.group, row.handler, row.attempt] += row.failed
        ended = row.recovered + row.dead + row.waiting + row.unknown
        ends[row.group, row.cause, row.error_type] += ended
    # Attempts that nobody of a cause has come to are no rows of it.
    assert steps == {
        (each.group, each.handler, each.attempt): each.failed for each in counted.report.funnel
    }
    last: dict[object, Any] = {}
    failed = counted.failures.where("kind = 'failure' and message is not null and replays is null")
    for row in failed.collect():
        order = row.attempt, row.event_time
        before = last.get(row.message)
        if before is None or order > (before.attempt, before.event_time):
            last[row.message] = row
    cause = Counter(
        (row.group, row.error_fingerprint or row.error_type or row.reason, row.error_type)
        for row in last.values()
    )
    assert +ends == cause
    assert len(cause) > 5


def test_a_gap_in_the_attempts_has_its_steps(spark: SparkSession) -> None:
    """A message that fails three times passes the second step; a header may say any number."""
    places = [{**ORIGIN, "origin_offset": offset} for offset in range(3)]
    attempts = zip(places, (1, 3, 5_000), strict=True)
    rows = [dead(n, attempt=attempt, **place) for n, (place, attempt) in enumerate(attempts)]
    found = notebook.funnel(frame(spark, rows)).collect()
    assert [(row.attempt, row.failed, row.dead) for row in found[:4]] == [
        (1, 3, 1), (2, 2, 0), (3, 2, 1), (4, 1, 0)
    ]  # fmt: skip
    assert [row.attempt for row in found[98:]] == [99, 100, 5_000]


def test_lives_end_as_the_report_says(counted: Counted) -> None:
    """Messages by the outcome of their last life, and how long they took to die."""
    lives = notebook.lives(counted.failures, counted.commits)
    last: dict[object, Any] = {}
    for row in lives.collect():
        if row.message not in last or row.replays > last[row.message].replays:
            last[row.message] = row
    totals = counted.report.totals
    assert Counter(row.outcome for row in last.values()) == {
        name: count for name in ("recovered", "dead", "waiting") if (count := getattr(totals, name))
    }
    assert sum(row.failures for row in lives.collect()) == totals.failures - totals.without_origin
    times = {(each.group, each.handler): each.to_death_s for each in counted.report.times}
    first = lives.where("replays = 0").groupBy("group", "handler")
    for row in first.agg({"to_death_s": "median"}).collect():
        took = times[row.group, row.handler]
        assert row[2] == (None if took is None else pytest.approx(took[0]))


def test_lives_join_the_table(counted: Counted) -> None:
    """By the column `message`, of one type in both; a key may be null."""
    lives = notebook.lives(counted.failures, counted.commits).where("replays = 0")
    joined = counted.failures.where("message is not null and kind = 'failure'").join(
        lives, counted.failures.message.eqNullSafe(lives.message), "left_anti"
    )
    assert joined.where("replays is null or replays = 0").count() == 0


def test_a_policy_is_tried_from_a_notebook(counted: Counted) -> None:
    """As on the command line, on the same messages as the report."""
    answer = notebook.what_if(counted.failures, RetryPolicy(max_redeliveries=3), counted.commits)
    assert answer.messages == counted.report.totals.messages
    assert answer.commits_known


def test_sql_sees_every_view_with_its_meanings(spark: SparkSession, counted: Counted) -> None:
    """Names, types and comments, as documented."""
    done = spark.createDataFrame([], DISPOSITION)
    notebook.register_views(counted.failures, counted.commits, done)
    columns = {
        **{name: list(columns) for name, columns in COMPUTED.items()},
        "failures": [*FAILURE, *DERIVED],
        "dispositions": list(DISPOSITION),
    }
    assert set(columns) == set(named_views.VIEWS)
    for name, expected in columns.items():
        told = spark.sql(f"DESCRIBE {name}").collect()
        assert [(row.col_name, row.data_type) for row in told] == [
            (each.name, each.dataType.simpleString()) for each in expected
        ]
        assert all(row.comment for row in told)
    dead_ones = spark.sql("SELECT count(*) FROM lives WHERE outcome = 'dead' AND replays = 0")
    assert dead_ones.first()[0] == sum(step.dead for step in counted.report.funnel)  # type: ignore[index]


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        (notebook.deliveries, COMPUTED["deliveries"]),
        (notebook.fingerprints, COMPUTED["fingerprints"]),
        (notebook.costs, COMPUTED["costs"]),
        (notebook.release_rates, COMPUTED["release_rates"]),
        (notebook.new_causes, NEW_CAUSE),
        (notebook.lives, COMPUTED["lives"]),
        (notebook.funnel, COMPUTED["funnel"]),
        (notebook.funnel_by_cause, COMPUTED["funnel_by_cause"]),
        (notebook.dispositions, DISPOSITION),
    ],
)
def test_the_docstrings_name_each_column_and_its_type(function: Any, columns: Any) -> None:
    """Where somebody asks the notebook for help."""
    told = " ".join(inspect.getdoc(function).split())  # type: ignore[union-attr]
    kinds = {each.name: each.dataType.simpleString().partition("<")[0] for each in columns}
    kinds |= {"releases": "array<string>"} if "releases" in kinds else {}
    assert [name for name, kind in kinds.items() if f"{name} {kind}" not in told] == []


def test_a_time_of_a_wrong_clock_is_no_first_and_no_last(spark: SparkSession) -> None:
    """It counts as a failure."""
    wrong = [datetime(year, 1, 1, tzinfo=UTC) for year in (1970, 2090)]
    rows = [dead(n, event_time=at) for n, at in enumerate([NOON, *wrong])]
    [row] = notebook.fingerprints(frame(spark, rows)).collect()
    assert (row.failures, utc(row["first"]), utc(row["last"])) == (3, NOON, NOON)
    assert row.sample.offset == 0


def test_a_notebook_names_its_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a relative path, by the environment, or not at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACKFLOOR_SPARK_TABLE", raising=False)
    with pytest.raises(TableRefused, match="table is empty; name a folder"):
        notebook.failures(spark)
    with pytest.raises(TableRefused, match="no table of failures there"):
        notebook.failures(spark, "failures")
    store.open_table(spark, str(tmp_path / "failures"))
    assert notebook.failures(spark, "failures").columns == [*FAILURE.names, *DERIVED.names]
    monkeypatch.setenv("ACKFLOOR_SPARK_TABLE", "failures")
    assert notebook.failures(spark).count() == 0


def test_a_notebook_goes_on_in_the_session_that_it_has(spark: SparkSession) -> None:
    """On a cluster it has one."""
    assert notebook.session() is spark
