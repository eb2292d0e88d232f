"""`ackfloor spark whatif`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor import SettingError
from ackfloor.cli.shared.parameters import Output, OutputOption
from ackfloor_monitoring.spark.cli.parameters import OneClusterOption, TableOption
from ackfloor_monitoring.spark.cli.stage_line import stage_line
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session
from ackfloor_monitoring.spark.whatif.whatif_model import PolicyOptions

if TYPE_CHECKING:
    from ackfloor_monitoring.spark.whatif.answer import WhatIf


def whatif(
    table: TableOption,
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
        whatif = _rerun(table, options, cluster, handler)
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


def _rerun(table: str, policy: PolicyOptions, cluster: str | None, handler: str | None) -> WhatIf:
    require_pyspark()
    from ackfloor_monitoring.spark.table import store
    from ackfloor_monitoring.spark.table.clusters import narrowed
    from ackfloor_monitoring.spark.whatif.build import what_if

    with (
        stage_line("starting Spark") as show_stage,
        spark_session("ackfloor spark whatif") as spark,
    ):
        show_stage(f"replaying the failures in {table}")
        failures = store.read_failures(spark, table)
        with store.readable_store_errors(table):
            failures = narrowed(failures, cluster, table)
            return what_if(failures, None, policy, table=table, handler=handler)
