"""`ackfloor spark audit`: finds records missing from the history of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor.cli.shared.rows import RowsOutput, print_rows
from ackfloor.core.values.durations import format_rounded
from ackfloor_monitoring.spark.cli.parameters import (
    FailedGroupOption,
    OneClusterOption,
    TableOption,
)
from ackfloor_monitoring.spark.report.formatting import some
from ackfloor_monitoring.spark.setup.kafka_options import connection_options

#: The columns that a narrow terminal drops, in this order.
SPARE = ("replays", "attempt", "group")

if TYPE_CHECKING:
    from ackfloor_monitoring.spark.audit.audit_job import Audit


def audit(
    table: TableOption,
    group: FailedGroupOption = None,
    cluster: OneClusterOption = None,
    grace: Annotated[
        int,
        typer.Option(min=0, help="How many seconds past its due time a record may still be open."),
    ] = 300,
    most: Annotated[
        int, typer.Option("--max", min=1, help="How many findings of each kind to name.")
    ] = 20,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Look for what is missing, doubled or late: every attempt of every message, hop by hop.

    Exits with 1 and a table where something is. Run `ackfloor spark ingest --once` first: what is
    not in the table is not judged, and the age of its newest ingest is told. Without brokers, what
    is overdue and whether replays were noted is left out.
    """
    settings = brokers.settings()
    named = settings.assigned_to("kafka.bootstrap_servers") is not None
    from ackfloor_monitoring.spark.audit import audit_job as job
    from ackfloor_monitoring.spark.setup.session import spark_session
    from ackfloor_monitoring.spark.table import kafka_reads as io
    from ackfloor_monitoring.spark.table import store
    from ackfloor_monitoring.spark.table.clusters import narrowed, require_one

    clients = brokers.options()
    kafka = job.Kafka(clients, connection_options(settings.kafka)) if named else None
    with spark_session("ackfloor spark audit") as spark, io.readable_spark_errors(f"table {table}"):
        failures = narrowed(store.read_failures(spark, table), cluster, table)
        if named and cluster is None:
            require_one(failures, table)
        made = job.audit(spark, failures, kafka, group=group, grace_s=grace, most=most)
    typer.echo(made.to_json()) if output is Output.json else _show(made)
    if made.counts:
        raise typer.Exit(1)


def _show(made: Audit) -> None:
    from ackfloor_monitoring.spark.audit.audit import Fault

    for what in (*made.left_out, _since_ingest(made.ingested_s_ago)):
        typer.echo(f"not judged: {what}", err=True)
    if not made.counts:
        seen = f"{some(made.records, 'record')} of {some(made.messages, 'message')}"
        typer.echo(f"{seen}, nothing missing, doubled or late")
        return
    for fault, count in made.counts.items():
        typer.echo(f"{count:>9,}  {fault}: {Fault(fault).description}")
    rows = [
        {
            "fault": str(each.fault),
            # Where a message comes from is a place to copy, not free text to be shortened.
            "origin": each.message,
            "record": each.record,
            "group": each.group,
            "attempt": each.attempt,
            "replays": each.replays,
        }
        for each in made.findings
    ]
    print_rows(rows, RowsOutput.table, spare=SPARE)


def _since_ingest(ago_s: float | None) -> str:
    """What the table can't know yet."""
    command = "`ackfloor spark ingest --once`"
    if ago_s is None:
        return f"anything, the table is empty: fill it with {command}"
    since = f"what came to Kafka since the newest ingest, {format_rounded(ago_s)} ago"
    # A second ingest would end the first.
    return f"{since}; where none is running, {command} stores it"
