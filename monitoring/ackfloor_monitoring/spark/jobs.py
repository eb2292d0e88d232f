"""The jobs: read, transform, hand back an answer. The SparkSession is an argument.

Run as a program it makes its own local session and prints the failure report:

    python -m ackfloor_monitoring.spark.jobs --bootstrap-servers HOST:PORT --group billing -o json

Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 the read failed, 2 wrong
usage, 3 Spark could not be started, 4 no broker answered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ackfloor import AckfloorError
from ackfloor_monitoring.spark.errors import NoTopics
from ackfloor_monitoring.spark.failures import CauseCount, FailureReport, TopicCount
from ackfloor_monitoring.spark.options import kafka_options, security_settings
from ackfloor_monitoring.spark.session import local_session
from ackfloor_monitoring.spark.tables import failure_tables

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def failure_report(
    spark: SparkSession,
    bootstrap_servers: str,
    group: str,
    security: Mapping[str, str] | None = None,
) -> FailureReport:
    """What is in the retry and dead-letter topics of a group, by cause and by topic.

    Every committed record counts once, hops of one long wait included; records that an aborted
    transaction wrote do not.

    Args:
        spark: the session; its Kafka connector must be on the class path.
        bootstrap_servers: `host:port`, comma-separated.
        group: the consumer group whose topics are read.
        security: as in `options.kafka_options`.

    Raises:
        KafkaUnreachable, KafkaRefused, NoTopics, ReadFailed, SecuritySettingRefused.
    """
    from pyspark.sql import functions as F

    from ackfloor_monitoring.spark import frames, io

    kafka = kafka_options(bootstrap_servers, security)
    topics = io.list_topics(spark, kafka, io.group_pattern(group))
    if not topics:
        raise NoTopics(
            f"group={group!r} has no retry or dead-letter topic on {bootstrap_servers}; check the "
            "name, and that a worker of the group was started once"
        )
    counts = (
        io.read_topics(spark, kafka, topics=topics)
        .transform(frames.failure_events)
        .transform(frames.failures_by_cause, ("topic", *frames.CAUSE))
        # As numbers: PySpark turns timestamps into local times without a zone.
        .withColumns({name: F.unix_millis(name) for name in ("first_seen", "last_seen")})
    )
    with io.spark_failures_told():
        rows = counts.collect()
    return FailureReport.from_counts(group, topics, map(_count, rows))


def _count(row: Row) -> tuple[CauseCount, TopicCount]:
    cause = CauseCount(
        stage=row["stage"],
        handler=row["handler"],
        reason=row["reason"],
        error_type=row["error_type"],
        records=row["records"],
        first_seen=_EPOCH + timedelta(milliseconds=row["first_seen"]),
        last_seen=_EPOCH + timedelta(milliseconds=row["last_seen"]),
        max_attempt=row["max_attempt"],
    )
    topic = TopicCount(row["topic"], row["stage"], row["records"], row["unreadable_records"])
    return cause, topic


class _Output(StrEnum):
    table = "table"
    json = "json"


_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@_app.command()
def _print_failure_report(
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            envvar=["ACKFLOOR_KAFKA__BOOTSTRAP_SERVERS", "ACKFLOOR_BOOTSTRAP_SERVERS"],
            help="host:port, comma-separated.",
        ),
    ],
    group: Annotated[str, typer.Option(envvar="ACKFLOOR_GROUP", help="The consumer group.")],
    output: Annotated[
        _Output, typer.Option("--output", "-o", envvar="ACKFLOOR_OUTPUT", help="How to print it.")
    ] = _Output.table,
) -> None:
    """Failures by handler, reason and error, from a group's retry and dead-letter topics.

    Security settings come from the environment as the workers' do, for example
    ACKFLOOR_KAFKA__SASL_PASSWORD.
    """
    status = Console(stderr=True).status("starting Spark")
    with _failures_told():
        security = security_settings(os.environ)
        with status, local_session("ackfloor failure report") as spark:
            status.update(f"reading the retry and dead-letter topics of {group}")
            report = failure_report(spark, bootstrap_servers, group, security)
    if output is _Output.json:
        typer.echo(report.to_json())
    else:
        _print_tables(report)


def _print_tables(report: FailureReport) -> None:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=200)  # in a pipe nothing has to be folded
    for table in failure_tables(report):
        console.print(table)


@contextmanager
def _failures_told() -> Iterator[None]:
    """Turn an expected failure into its one sentence and its exit code."""
    try:
        yield
    except AckfloorError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


if __name__ == "__main__":
    _app()
