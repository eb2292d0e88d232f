"""`ackfloor spark report`: what failed, why, what retries bought, as tables, JSON or a page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor.cli.shared.rows import console
from ackfloor.cli.shared.times import time_of
from ackfloor.settings import Settings
from ackfloor_monitoring.spark.cli.parameters import FailedGroupOption, TableOption, ingest_plan
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.report.page.page import html_page
from ackfloor_monitoring.spark.report.terminal import report_tables
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session
from ackfloor_monitoring.spark.spark_errors import PageNotWritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def report(
    table: TableOption,
    group: FailedGroupOption = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="What is new is counted from here: a date, a time, or how long ago (24h, 7d).",
            show_default="the last day of the table",
        ),
    ] = None,
    since_release: Annotated[
        str | None,
        typer.Option(help="What is new is counted from the first failure of this release."),
    ] = None,
    ingest: Annotated[
        bool,
        typer.Option(
            "--ingest",
            help="First store what the topics hold by now, as `ackfloor spark ingest --once` does.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write the report as one HTML file that needs no network."),
    ] = None,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits/--no-commits",
            help="Ask the brokers what the groups have committed, where a setting names brokers. "
            "Without it the report can't tell recovered messages from waiting ones.",
        ),
    ] = True,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Say what failed, why, what retries bought, and what is new.

    It reads the table that `ackfloor spark ingest` fills, and changes nothing but with --ingest.
    """
    settings = brokers.settings()
    named = settings.assigned_to("kafka.bootstrap_servers") is not None
    clients = brokers.options()
    if since is not None and since_release is not None:
        raise typer.BadParameter("give --since or --since-release, not both")
    now = datetime.now(UTC)
    since_when = None if since is None else _since(since, now)
    if html is not None:
        _check_folder(html)
    require_pyspark()
    from ackfloor_monitoring.spark.report.build import Since
    from ackfloor_monitoring.spark.report.job import failure_history

    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark report") as spark,
    ):
        if ingest:
            show_stage(f"storing what the topics hold in {table}")
            _ingest(spark, table, settings, group)
        show_stage(f"counting the failures in {table}")
        made = failure_history(
            spark,
            table,
            group=group,
            since=Since(since_when, since_release),
            clients=clients if commits and named else None,
            made_at=now,
        )
    if html is not None:
        _write(html, html_page(made))
    if output is Output.json:
        typer.echo(made.to_json())
    else:
        _print_tables(made)


def _since(text: str, now: datetime) -> datetime:
    time = time_of("--since", text, now)
    if time > now:
        raise typer.BadParameter(
            f"{text!r} lies in the future: nothing could be new since then", param_hint="--since"
        )
    return time


def _check_folder(file: Path) -> None:
    """Refuse a page that can't be written, before minutes of work."""
    if file.is_dir() or not file.parent.is_dir():
        why = "is a folder" if file.is_dir() else f"has no folder {file.parent} to lie in"
        raise PageNotWritten(f"--html {str(file)!r} {why}; name a file in a folder that exists")


def _ingest(spark: SparkSession, table: str, settings: Settings, group: str | None) -> None:
    from ackfloor_monitoring.spark.table.ingest import Ingest

    plan = ingest_plan(settings, table, group, once=True)
    Ingest(spark, plan, lambda line: typer.echo(line, err=True)).run()


def _write(file: Path, page: str) -> None:
    try:
        file.write_text(page, "utf-8")
    except OSError as error:
        raise PageNotWritten(f"--html {str(file)!r} can't be written: {error.strerror}") from None
    typer.echo(f"wrote {file}", err=True)


def _print_tables(made: Report) -> None:
    target = console()
    for part in report_tables(made):
        target.print(part)
