"""Queries over the views: their values, and what is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner, Result

from ackfloor.core.records.envelope import Envelope
from ackfloor_monitoring.spark.analysis.query import answer
from ackfloor_monitoring.spark.cli import spark_app
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import QueryRefused
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.ingest import Ingest, IngestPlan
from tests.monitoring.spark.failure_rows import NOON, dead, frame
from tests.redrive_stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
# The package has the command of this name where the module would be.
command = import_module("ackfloor_monitoring.spark.cli.sql")
ROWS = [
    dead(n, key=key, event_time=NOON + timedelta(milliseconds=n), error_message='a "b",\nc')
    for n, key in enumerate((b"k1", b"\xff\x00", None))
]


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three failures."""
    path = str(tmp_path_factory.mktemp("query") / "failures")
    store.open_table(spark, path)
    store.append(frame(spark, ROWS), path)
    return path


@pytest.fixture
def table(spark: SparkSession, stored: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Them; the command uses the tests' session."""

    @contextmanager
    def session(_name: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(command, "spark_session", session)
    monkeypatch.delenv("ACKFLOOR_BOOTSTRAP_SERVERS", raising=False)
    return stored


def sql(table: str, query: str, *arguments: str, given: str | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(spark_app, ["sql", query, "--table", table, *arguments], input=given)


def test_each_kind_of_value_is_plain(spark: SparkSession) -> None:
    """As JSON has it: times further than Python's as well, nothing that JSON can't hold."""
    names, rows = answer(
        spark,
        """SELECT 1 AS i, 1.50 AS d, double('nan') AS n, X'6b31' AS t, X'ff00' AS b, true AS f,
             timestamp'2026-03-01 12:00:00.5' AS at, timestamp'+12026-01-01' AS far,
             date'2026-03-01' AS day, array(X'6b') AS a, map('x', NULL) AS m,
             named_struct('at', timestamp'2026-03-01 12:00:00') AS s, interval '1' day AS `odd.name`
           -- a comment at the end""",
        5,
    )
    assert rows == [
        {
            "i": 1, "d": "1.50", "n": "nan", "t": "k1", "b": "0xff00", "f": True,
            "at": "2026-03-01T12:00:00.500Z", "far": "+12026-01-01T00:00:00.000Z",
            "day": "2026-03-01", "a": ["k"], "m": {"x": None},
            "s": {"at": "2026-03-01T12:00:00.000Z"}, "odd.name": "1 day, 0:00:00",
        }
    ]  # fmt: skip
    assert names == list(rows[0])
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        (" ; ", "it is empty; write one SELECT"),
        ("SELECT nosuch FROM failures", "`nosuch` cannot be resolved"),
        ("SELECT * FROM nosuch", "`nosuch` cannot be found"),
        ("SELECT 1 AS a, 2 AS a", "it has more than one column a; give each a name with AS"),
        ("SELECT raise_error('it is so')", "it is so"),
        ("SELECT 1; SELECT 2", "Syntax error"),
        ("SELECT 1) x, (SELECT 2", "Syntax error"),
        ("DELETE FROM delta.`{table}`", "a statement that may change something"),
        ("DROP VIEW failures", "a statement that may change something"),
        ("INSERT INTO delta.`{table}` SELECT * FROM failures", "may change something"),
        ("WITH x AS (SELECT 1) INSERT INTO delta.`{table}` SELECT * FROM x", "may change"),
        ("FROM failures INSERT INTO delta.`{table}` SELECT *", "may change something"),
        ("VACUUM delta.`{table}`", "a statement that may change something"),
        ("SET spark.sql.shuffle.partitions = 1", "a statement that may change something"),
    ],
)
def test_what_is_no_query_gets_one_sentence(
    query: str, sentence: str, table: str, spark: SparkSession
) -> None:
    """Without a stack, and the table is as it was."""
    before = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").count()
    refused = sql(table, query.format(table=table))
    assert isinstance(refused.exception, QueryRefused)
    told = str(refused.exception)
    assert told.startswith("query: ")
    assert sentence in told
    assert "\n" not in told
    assert spark.sql(f"DESCRIBE HISTORY delta.`{table}`").count() == before


def test_an_unknown_name_is_answered_with_the_known_ones(table: str) -> None:
    """What can be written instead."""
    refused = str(sql(table, "SELECT * FROM dispositions").exception)
    assert (
        "the views are failures, deliveries, fingerprints, costs, release_rates, lives, "
        "funnel, funnel_by_cause, dispositions (the last" in refused
    )


def test_people_get_a_table(table: str) -> None:
    """And are told of rows that are left out."""
    query = "SELECT offset, key, headers FROM failures ORDER BY offset;"
    shown = sql(table, query, "--limit", "2")
    assert shown.exit_code == 0, shown.exception
    lines = [line.split() for line in shown.stdout.splitlines() if line.strip()]
    assert lines[0] == ["offset", "key", "headers"]
    assert [line[:2] for line in lines[-2:]] == [["0", "k1"], ["1", "0xff00"]]
    assert "there are more rows; --limit 2 printed the first" in shown.stderr
    assert "more rows" not in sql(table, query, "--limit", "3").stderr
    assert sql(table, "SELECT * FROM failures WHERE false").exit_code == 0


def test_programs_get_csv_and_json(table: str) -> None:
    """From standard input as well; a heading also without rows."""
    query = "SELECT offset, error_message, unreadable FROM failures WHERE offset < 1"
    as_csv = sql(table, "-", "-o", "csv", given=query)
    assert as_csv.stdout == 'offset,error_message,unreadable\n0,"a ""b"",\nc",[]\n'
    [row] = json.loads(sql(table, query, "-o", "json").stdout)
    assert row == {"offset": 0, "error_message": 'a "b",\nc', "unreadable": []}
    none = sql(table, "SELECT offset FROM failures WHERE offset > 5", "-o", "csv")
    assert none.stdout == "offset\n"
    described = json.loads(sql(table, "describe funnel", "-o", "json").stdout)
    assert described[2]["comment"] == "Failed deliveries so far."


def test_a_group_of_the_table_is_asked(table: str) -> None:
    """Of another one there is nothing."""
    query = "SELECT count(*) AS n FROM failures"
    for group, count in (("billing", 3), ("mail", 0)):
        [row] = json.loads(sql(table, query, "--group", group, "-o", "json").stdout)
        assert row == {"n": count}


@pytest.mark.kafka
def test_brokers_are_asked_where_the_query_needs_them(
    table: str, spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """For dispositions and commits; a query of the table alone needs none that answers."""
    stage = Stage(bootstrap_servers)
    stage.died = Envelope(stage.source, 0, group=stage.group, handler="bill", attempt=1)
    stage.bury([(None, b"v", [])] * 3)
    assert stage.job(limit=2).run(stage.everything()).sent == 2
    there, pattern = str(tmp_path / "stage"), io.group_pattern(stage.group)
    Ingest(spark, IngestPlan(there, kafka_options(stage.servers), pattern, once=True)).run()
    # A worker has read the retry topic, and settled nothing of it.
    worker = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
    partitions = worker.list_topics(stage.tier, timeout=60).topics[stage.tier].partitions
    at_start = [TopicPartition(stage.tier, partition, 0) for partition in partitions]
    worker.commit(offsets=at_start, asynchronous=False)
    worker.close()
    named = ("--bootstrap-servers", stage.servers, "--group", stage.group, "-o", "json")
    done = sql(
        there,
        "SELECT coalesce(disposition, 'none') AS done, count(*) AS n FROM failures "
        "LEFT JOIN dispositions USING (topic, topic_id, partition, offset) "
        "WHERE stage = 'dlq' GROUP BY 1 ORDER BY 1",
        *named,
    )
    assert json.loads(done.stdout) == [{"done": "none", "n": 1}, {"done": "replayed", "n": 2}]
    outcomes = "SELECT outcome, count(*) AS n FROM lives WHERE replays = 1 GROUP BY 1"
    found: list[Any] = json.loads(sql(there, outcomes, *named).stdout)
    assert found == [{"outcome": "waiting", "n": 2}]
    away = sql(table, "SELECT 1 AS a", "--bootstrap-servers", "localhost:1", "-o", "json")
    assert json.loads(away.stdout) == [{"a": 1}]
