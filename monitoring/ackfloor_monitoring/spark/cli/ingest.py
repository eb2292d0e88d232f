"""`ackfloor spark ingest`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor_monitoring.spark.cli.parameters import (
    ClusterOption,
    EveryOption,
    KeepOption,
    MaxRecordsOption,
    OneGroupOption,
    TableOption,
    ingest_plan,
)
from ackfloor_monitoring.spark.cli.signals import stopped_by_signals
from ackfloor_monitoring.spark.setup.session import spark_session


def ingest(
    table: TableOption,
    group: OneGroupOption = None,
    cluster: ClusterOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Store what is there now, then end.")
    ] = False,
    every: EveryOption = "10s",
    keep: KeepOption = None,
    max_records: MaxRecordsOption = 500_000,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Store every record of the retry and dead-letter topics in a Delta table, each once.

    It reads on where the table ends, whenever it is started; it may be killed at any moment.
    Topics that come later are read as well. What [redaction] takes away is never stored. How to
    reach the brokers is in [kafka], as for workers.
    """
    plan = ingest_plan(
        brokers.settings(), table, group, every, keep, max_records, once=once, cluster=cluster
    )
    from ackfloor_monitoring.spark.table.ingest import Ingest

    with spark_session("ackfloor spark ingest", lasting=not once) as spark:
        work = Ingest(spark, plan, lambda line: typer.echo(line, err=True))
        with stopped_by_signals(work):
            stored = work.run()
    if output is Output.json:
        typer.echo(json.dumps(asdict(stored)))
    else:
        typer.echo(f"stored {stored.records:,} records in {stored.batches} batches in {table}")
