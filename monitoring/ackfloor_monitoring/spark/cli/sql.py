"""`ackfloor spark sql`: a query over the table and its views."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, json_text, print_rows
from ackfloor_monitoring.spark.cli.parameters import (
    FailedGroupOption,
    OneClusterOption,
    TableOption,
)
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.setup.kafka_options import connection_options
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ackfloor.commits import Settled
    from ackfloor.redrive import KafkaOptions


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, and where it is answered from.

    Attributes:
        most: most rows.
        clients, kafka: properties of librdkafka's clients, and options of Spark's; None where no
            setting names brokers.
    """

    text: str
    table: str
    group: str | None
    cluster: str | None
    most: int
    clients: KafkaOptions | None
    kafka: Mapping[str, str] | None


def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help='The query, such as "SELECT * FROM funnel"; - is standard input.'
        ),
    ],
    table: TableOption,
    group: FailedGroupOption = None,
    cluster: OneClusterOption = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 10_000,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Answer a query in Spark's SQL over the table. Nothing is changed.

    Views: failures, deliveries, fingerprints, costs, release_rates, lives, funnel, funnel_by_cause,
    dispositions; DESCRIBE shows the columns of one.
    Where a setting names brokers, they are asked for the groups' commits and the dispositions, if
    the query reads a view that needs them.
    """
    settings = brokers.settings()
    named = settings.assigned_to("kafka.bootstrap_servers") is not None
    clients = brokers.options() if named else None
    kafka = connection_options(settings.kafka) if named else None
    text = sys.stdin.read() if query == "-" else query
    columns, rows = _answered(_Asked(text, table, group, cluster, limit + 1, clients, kafka))
    shown = rows[:limit]
    if output in (RowsOutput.table, RowsOutput.csv):
        shown = [{name: _flat(value) for name, value in row.items()} for row in shown]
    print_rows(shown, output, columns)
    if len(rows) > limit:
        typer.secho(f"there are more rows; --limit {limit} printed the first", err=True)


def _answered(asked: _Asked) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
    require_pyspark()
    from ackfloor_monitoring.spark.analysis.query import answer
    from ackfloor_monitoring.spark.analysis.views import register, views
    from ackfloor_monitoring.spark.table import store
    from ackfloor_monitoring.spark.table.clusters import failures_of

    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark sql") as spark,
    ):
        show_stage(f"reading {asked.table}")
        failures = failures_of(spark, asked.table, asked.group, asked.cluster)
        with store.readable_store_errors(asked.table):
            found = views(failures, _commits(failures, asked), _dispositions(spark, asked))
            register(spark, found)
        return answer(spark, asked.text, asked.most)


def _commits(failures: DataFrame, asked: _Asked) -> Sequence[Settled]:
    """Those of the groups in the table, where the query needs them and there are brokers."""
    from ackfloor_monitoring.spark.analysis.query import mentions
    from ackfloor_monitoring.spark.table.settled_rows import committed

    if asked.clients is None or not mentions(asked.text, "lives", "funnel", "funnel_by_cause"):
        return ()
    return committed(failures, asked.clients)


def _dispositions(spark: SparkSession, asked: _Asked) -> DataFrame | None:
    from ackfloor_monitoring.spark.analysis.query import mentions
    from ackfloor_monitoring.spark.table.disposition_rows import read_dispositions

    if asked.kafka is None or not mentions(asked.text, "dispositions"):
        return None
    return read_dispositions(spark, asked.kafka, asked.group)


def _flat(value: object) -> object:
    """A value in one cell: what has parts is JSON."""
    return json_text(value) if isinstance(value, dict | list) else value
