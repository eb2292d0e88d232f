"""`ackfloor spark doctor`, `ackfloor spark jars` and `ackfloor spark prepare`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor_monitoring.spark.setup.kafka_options import connection_options
from ackfloor_monitoring.spark.setup.session import require_pyspark
from ackfloor_monitoring.spark.setup.spark_checks import CheckResult, examine
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars

_COLOURS = {"ok": "green", "bad": "red", "not tried": "yellow"}


def doctor(
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Say whether Spark can work here: versions, Java, jars, a session, the brokers.

    Where something is missing it says what to do, and exits with 1. Brokers are asked where a
    setting names them.
    """
    settings = brokers.settings()
    named = settings.assigned_to("kafka.bootstrap_servers") is not None
    found = examine(connection_options(settings.kafka) if named else None)
    if output is Output.json:
        results = list(found)
        typer.echo(json.dumps([asdict(each) for each in results], indent=2))
    else:
        results = list(_shown(found))
    if any(each.state != "ok" for each in results):
        raise typer.Exit(1)


def _shown(results: Iterable[CheckResult]) -> Iterable[CheckResult]:
    for result in results:
        mark = typer.style(f"{result.state:<9}", fg=_COLOURS[result.state])
        typer.echo(f"{mark}  {result.check:<15}  {result.detail}".rstrip())
        if result.fix:
            typer.echo(f"{'':<28}{result.fix}")
        yield result


def jars() -> None:
    """Print the jars that Spark needs as one comma-separated line: for `spark-submit --jars`.

    They are fetched where they are not here yet.
    """
    typer.echo(",".join(map(str, spark_jars())))


def prepare() -> None:
    """Fetch the jars and make an archive of Spark's classes: it starts in half the time.

    That takes a minute or two, once for one Java and one installed Spark, for instance when an
    image is built. Prints where the archive is. Each local session takes it from there.
    """
    require_pyspark()
    from ackfloor_monitoring.spark.setup.spark_preparation import prepare_spark

    archive, made = prepare_spark(tell=partial(typer.echo, err=True))
    typer.echo(archive.path)
    state = "made" if made else "was there already"
    typer.echo(f"archive of classes {state}, for {archive.java.executable}", err=True)
