"""`ackfloor spark report`: what failed, why, what retries bought, as tables, JSON or a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor.cli.shared.times import time_of
from ackfloor.core.values.durations import parse_duration
from ackfloor_monitoring.spark.cli.parameters import (
    FailedGroupOption,
    OneClusterOption,
    TableOption,
    ingest_plan,
)
from ackfloor_monitoring.spark.cli.rounds import Rounds
from ackfloor_monitoring.spark.cli.signals import stopped_by_signals
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.report.answer import Report
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session
from ackfloor_monitoring.spark.spark_errors import NothingToReport, NoTopics, PageNotWritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ackfloor.redrive import KafkaOptions
    from ackfloor.settings import Settings


@dataclass(frozen=True, slots=True)
class _Work:
    """What each report is made of, whenever it is made."""

    table: str
    group: str | None
    cluster: str | None
    settings: Settings
    clients: KafkaOptions | None
    since: str | None
    since_release: str | None
    ingest: bool
    html: Path | None
    metrics_file: Path | None
    keep: bool

    def store(self, spark: SparkSession, show_stage: Callable[[str], None]) -> None:
        """Store what the topics hold by now, where that is asked for."""
        if self.ingest:
            show_stage(f"storing what the topics hold in {self.table}")
            _ingest(spark, self)

    def count(self, spark: SparkSession, show_stage: Callable[[str], None]) -> Report:
        """Count what is stored, and write the page."""
        from ackfloor_monitoring.spark.report.build import Since
        from ackfloor_monitoring.spark.report.job import failure_history

        now = datetime.now(UTC)
        since = None if self.since is None else _since(self.since, now)
        show_stage(f"counting the failures in {self.table}")
        made = failure_history(
            spark,
            self.table,
            group=self.group,
            cluster=self.cluster,
            since=Since(since, self.since_release),
            clients=self.clients,
            made_at=now,
            keep=self.keep,
            say=lambda line: typer.echo(line, err=True),
        )
        if self.html is not None:
            from ackfloor_monitoring.spark.report.page.page import html_page

            _write("--html", self.html, html_page(made))
        if self.metrics_file is not None:
            from ackfloor_monitoring.spark.report.metrics_file import metrics_text

            _write("--metrics-file", self.metrics_file, metrics_text(made))
        return made


def report(
    table: TableOption,
    group: FailedGroupOption = None,
    cluster: OneClusterOption = None,
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
    every: Annotated[
        str | None,
        typer.Option(
            help="Make the page of --html again this long after the last one, such as 15m. Ctrl-C "
            "and SIGTERM make it a last time, then the command ends.",
            show_default="once",
        ),
    ] = None,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            help="Also write the figures as metrics, for the node exporter's textfile collector "
            "(a name that ends in .prom) or a Pushgateway."
        ),
    ] = None,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits/--no-commits",
            help="Ask the brokers what the groups have committed, where a setting names brokers. "
            "Without it the report can't tell recovered messages from waiting ones.",
        ),
    ] = True,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep beside the table what is counted of each day, so that the next report reads "
            "only days that have changed: for histories of many millions. Without it every day is "
            "counted, and nothing is written.",
        ),
    ] = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Say what failed, why, what retries bought, and what is new.

    It reads the table that `ackfloor spark ingest` fills, and changes no row of it.
    """
    settings = brokers.settings()
    named = settings.assigned_to("kafka.bootstrap_servers") is not None
    clients = brokers.options()
    if since is not None and since_release is not None:
        raise typer.BadParameter("give --since or --since-release, not both")
    if since is not None:
        _since(since, datetime.now(UTC))
    rounds = _rounds(every, html)
    for option, file in (("--html", html), ("--metrics-file", metrics_file)):
        if file is not None:
            _check_folder(option, file)
    require_pyspark()
    asked = clients if commits and named else None
    work = _Work(
        table, group, cluster, settings, asked, since, since_release, ingest, html, metrics_file,
        keep,
    )  # fmt: skip
    with (
        _until_stopped(rounds, html),
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark report") as spark,
    ):
        made = _in_rounds(work, rounds, spark, show_stage)
    if output is Output.json:
        typer.echo(made.to_json())
    else:
        _print_tables(made)


def _rounds(every: str | None, html: Path | None) -> Rounds | None:
    """When the report is made again; None for once."""
    if every is None:
        return None
    if html is None:
        raise typer.BadParameter(
            "only a page is made again and again: name it with --html", param_hint="--every"
        )
    every_s = parse_duration(every, field="--every")
    if not every_s:
        raise typer.BadParameter(
            f"{every!r} would start Spark's work without a pause; give a time such as 15m",
            param_hint="--every",
        )
    return Rounds(every_s)


@contextmanager
def _until_stopped(rounds: Rounds | None, html: Path | None) -> Iterator[None]:
    """In the block, which begins before Spark starts, a signal asks for the last report."""
    if rounds is None:
        yield
        return
    with stopped_by_signals(rounds):
        typer.echo(f"Ctrl-C or SIGTERM writes {html} a last time, and ends this", err=True)
        yield


def _in_rounds(
    work: _Work, rounds: Rounds | None, spark: SparkSession, show_stage: Callable[[str], None]
) -> Report:
    """The report that was made last."""
    while rounds is not None and not rounds.stopped():
        try:
            work.store(spark, show_stage)
            if rounds.stopped():
                break
            work.count(spark, show_stage)
        except (NoTopics, NothingToReport) as nothing:
            typer.echo(f"no page yet: {nothing}", err=True)
        show_stage("waiting for the next round")
        rounds.wait()
    work.store(spark, show_stage)
    return work.count(spark, show_stage)


def _since(text: str, now: datetime) -> datetime:
    time = time_of("--since", text, now)
    if time > now:
        raise typer.BadParameter(
            f"{text!r} lies in the future: nothing could be new since then", param_hint="--since"
        )
    return time


def _check_folder(option: str, file: Path) -> None:
    """Refuse a file that can't be written, before minutes of work."""
    if file.is_dir() or not file.parent.is_dir():
        why = "is a folder" if file.is_dir() else f"has no folder {file.parent} to lie in"
        raise PageNotWritten(f"{option} {str(file)!r} {why}; name a file in a folder that exists")


def _ingest(spark: SparkSession, work: _Work) -> None:
    from ackfloor_monitoring.spark.table.ingest import Ingest

    plan = ingest_plan(work.settings, work.table, work.group, once=True, cluster=work.cluster)
    Ingest(spark, plan, lambda line: typer.echo(line, err=True)).run()


def _write(option: str, file: Path, text: str) -> None:
    """Whoever opens the file meanwhile gets the one before, whole."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text, "utf-8")
        beside.replace(file)
    except OSError as error:
        raise PageNotWritten(f"{option} {str(file)!r} can't be written: {error.strerror}") from None
    typer.echo(f"wrote {file}", err=True)


def _print_tables(made: Report) -> None:
    from ackfloor.cli.shared.tables import console
    from ackfloor_monitoring.spark.report.terminal import report_tables

    target = console()
    for part in report_tables(made):
        target.print(part)
