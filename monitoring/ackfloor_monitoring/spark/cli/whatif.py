"""`ackfloor spark whatif`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor import SettingError
from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption, Output, OutputOption
from ackfloor_monitoring.spark.cli.parameters import (
    FailedGroupOption,
    OneClusterOption,
    TableOption,
)
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session
from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions

if TYPE_CHECKING:
    from ackfloor.redrive import KafkaOptions
    from ackfloor_monitoring.spark.whatif.answer import WhatIf


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whose failures; `clients` read the groups' commits, None leaves them out."""

    table: str
    group: str | None
    cluster: str | None
    handler: str | None
    clients: KafkaOptions | None


def whatif(
    table: TableOption,
    group: FailedGroupOption = None,
    cluster: OneClusterOption = None,
    handler: Annotated[
        str | None,
        typer.Option(help="Only the failures of this handler.", show_default="every handler"),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A whole policy: activemq or rocketmq.")
    ] = None,
    max_redeliveries: Annotated[
        int | None,
        typer.Option(help="How often a message is redelivered.", show_default="as in force"),
    ] = None,
    initial_delay: Annotated[
        str | None,
        typer.Option(
            help="The wait before the first redelivery, such as 10s.", show_default="as in force"
        ),
    ] = None,
    multiplier: Annotated[
        float | None,
        typer.Option(
            help="How much longer each wait is than the one before.", show_default="as in force"
        ),
    ] = None,
    max_delay: Annotated[
        str | None,
        typer.Option(help="The longest wait.", show_default="10m, or as in force"),
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(help="The share that is added to a wait at most.", show_default="as in force"),
    ] = None,
    delay: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a curve each wait in turn: --delay 1s --delay 30s; the last repeats."
        ),
    ] = None,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits/--no-commits",
            help="Ask the brokers what the groups have committed, where a setting names brokers. "
            "Without it a message whose wait is over counts as recovered, also if it still waits.",
        ),
    ] = True,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Say what another retry policy would have made of the failures in the table.

    How many messages would have recovered, how many would be dead letters, how many redeliveries it
    would have taken. What is not given is as in the policy in force, which is read off the
    records, for each handler. Nothing is changed. The assumptions behind the numbers are printed
    with them.
    """
    options = PolicyOptions(
        preset, max_redeliveries, initial_delay, multiplier, max_delay, jitter, tuple(delay or ())
    )
    try:
        options.policy()  # refused before Spark is started
        named = brokers.settings().assigned_to("kafka.bootstrap_servers") is not None
        clients = brokers.options() if commits and named else None
        whatif = _rerun(_Asked(table, group, cluster, handler, clients), options)
    except SettingError as error:
        raise typer.BadParameter(str(error)) from None
    if output is Output.json:
        typer.echo(whatif.to_json())
        return
    from ackfloor.cli.shared.tables import console
    from ackfloor_monitoring.spark.whatif.terminal import whatif_tables

    target = console(120)
    for part in whatif_tables(whatif):
        target.print(part)


def _rerun(asked: _Asked, policy: PolicyOptions) -> WhatIf:
    require_pyspark()
    from ackfloor_monitoring.spark.table import store
    from ackfloor_monitoring.spark.table.clusters import failures_of
    from ackfloor_monitoring.spark.table.settled_rows import committed
    from ackfloor_monitoring.spark.whatif.build import what_if

    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark whatif") as spark,
    ):
        show_stage(f"replaying the failures in {asked.table}")
        failures = failures_of(spark, asked.table, asked.group, asked.cluster)
        with store.readable_store_errors(asked.table):
            known = None if asked.clients is None else committed(failures, asked.clients)
            return what_if(failures, known, policy, table=asked.table, handler=asked.handler)
