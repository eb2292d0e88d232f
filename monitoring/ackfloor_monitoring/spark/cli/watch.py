"""`ackfloor spark watch`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption
from ackfloor.core.values.durations import parse_duration
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
from ackfloor_monitoring.spark.watch.detection import Rules


def watch(
    table: TableOption,
    group: OneGroupOption = None,
    cluster: ClusterOption = None,
    listen: Annotated[
        str, typer.Option(help="Where metrics are served: host:port; port 0 takes any free one.")
    ] = "127.0.0.1:9610",
    look_back: Annotated[
        str,
        typer.Option(
            help="A fingerprint without a failure for this long is new; usual is the mean of it."
        ),
    ] = "7d",
    window: Annotated[str, typer.Option(help="The time in which a surge is counted.")] = "5m",
    surge_factor: Annotated[
        float, typer.Option(help="How many times the usual failures of a window are a surge.")
    ] = 5.0,
    surge_minimum: Annotated[
        int, typer.Option(help="The least failures of a window that are a surge.")
    ] = 20,
    every: EveryOption = "10s",
    keep: KeepOption = None,
    max_records: MaxRecordsOption = 500_000,
    brokers: BrokersOption = OF_SETTINGS,
) -> None:
    """Ingest without end, and say what is new in it: metrics, and a line for each find.

    It is `ackfloor spark ingest` that looks at what it stores: fingerprints that were not seen in
    the look-back, and surges of those that were. What is known after a start is what the table
    holds. Its own health is in the metrics as well.
    """
    rules = Rules(
        parse_duration(look_back, field="--look-back"),
        parse_duration(window, field="--window"),
        surge_factor,
        surge_minimum,
    )
    plan = ingest_plan(brokers.settings(), table, group, every, keep, max_records, cluster=cluster)
    from ackfloor_monitoring.metrics.watch_metrics import WatchMetrics
    from ackfloor_monitoring.serving.http_server import PageServer
    from ackfloor_monitoring.spark.watch.stream import Watch

    metrics = WatchMetrics(time.time)
    server = PageServer({"/metrics": metrics.page()})
    # Before Spark: a port that is taken fails at once.
    typer.echo(f"metrics: http://{server.start(listen)}/metrics", err=True)
    try:
        with spark_session("ackfloor spark watch", lasting=True) as spark:
            work = Watch(spark, plan, rules, metrics, lambda line: typer.echo(line, err=True))
            with stopped_by_signals(work):
                stored = work.run()
    finally:
        server.stop()
    typer.echo(f"stored {stored.records:,} records in {stored.batches} batches in {table}")
