"""`ackfloor spark ingest`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.core.durations import parse_duration
from ackfloor.settings import Settings
from ackfloor_monitoring.spark.cli.parameters import (
    BootstrapServersOption,
    ConfigOption,
    Output,
    OutputOption,
    TableOption,
    settings_flags,
)
from ackfloor_monitoring.spark.options import connection_options
from ackfloor_monitoring.spark.session import require_pyspark, spark_session

if TYPE_CHECKING:
    from ackfloor_monitoring.spark.ingest import Ingest


def ingest(
    table: TableOption,
    group: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_GROUP",
            help="Only the topics of this consumer group.",
            show_default="every group",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            envvar="ACKFLOOR_SPARK_INGEST_ONCE",
            help="Store what is there now, then end.",
        ),
    ] = False,
    every: Annotated[
        str,
        typer.Option(
            envvar="ACKFLOOR_SPARK_INGEST_EVERY", help="The time from one batch to the next."
        ),
    ] = "10s",
    keep: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_SPARK_INGEST_KEEP",
            help="How long failures are kept, such as 90d; whole days go.",
            show_default="for ever",
        ),
    ] = None,
    max_records: Annotated[
        int,
        typer.Option(
            envvar="ACKFLOOR_SPARK_INGEST_MAX_RECORDS", min=1, help="The records of one batch."
        ),
    ] = 500_000,
    bootstrap_servers: BootstrapServersOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Store every record of the retry and dead-letter topics in a Delta table, once.

    It reads on where the table ends, whenever it is started; it may be killed at any moment.
    Topics that come later are read as well. What [redaction] takes away is never stored. How to
    reach the brokers is in [kafka], as for workers.
    """
    settings = Settings.load(flags=settings_flags(bootstrap_servers), config=config)
    kafka = connection_options(settings.kafka)
    every_s = parse_duration(every, field="--every")
    keep_s = parse_duration(keep, field="--keep") if keep else None
    require_pyspark()
    from ackfloor_monitoring.spark import io
    from ackfloor_monitoring.spark.ingest import Ingest, IngestPlan

    plan = IngestPlan(
        table=table,
        kafka=kafka,
        pattern=io.group_pattern(group) if group else io.EVERY_GROUP,
        rules=settings.redaction.rules(),
        once=once,
        every_s=every_s,
        keep_s=keep_s,
        at_most=max_records,
    )
    with spark_session("ackfloor spark ingest") as spark:
        work = Ingest(spark, plan, lambda line: typer.echo(line, err=True))
        with _stopped_by_signals(work):
            stored = work.run()
    if output is Output.json:
        typer.echo(json.dumps(asdict(stored)))
    else:
        typer.echo(f"stored {stored.records:,} records in {stored.batches} batches in {table}")


@contextmanager
def _stopped_by_signals(work: Ingest) -> Iterator[None]:
    """SIGTERM and Ctrl-C end it in order; a second one ends it at once."""
    before = {}

    def ask(number: int, _: object) -> None:
        work.stop()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
