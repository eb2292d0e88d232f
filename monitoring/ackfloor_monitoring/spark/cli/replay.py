"""`ackfloor spark replay`: dead letters back to work, chosen by SQL over the table of failures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    BrokersOption,
    MaxOption,
    Output,
    OutputOption,
    RateOption,
    YesOption,
)
from ackfloor.dead_letters.commands.redriving import Part, carry_out, rate_of
from ackfloor.redrive import Order, job_name, operator
from ackfloor_monitoring.spark.cli.parameters import TableOption

if TYPE_CHECKING:
    from ackfloor.redrive import KafkaOptions
    from ackfloor_monitoring.spark.redrive_selection import Chosen


def replay(
    table: TableOption,
    where: Annotated[
        str, typer.Option(help="SQL over the columns of the table; of its rows, the dead letters.")
    ],
    to: Annotated[
        str,
        typer.Option(
            help="`retry`: the first retry topic, so that only this group sees them; `source`: the "
            "topic they came from; or a topic."
        ),
    ] = "retry",
    rate: RateOption = None,
    most: MaxOption = None,
    max_replays: Annotated[
        int, typer.Option(min=1, help="What was replayed so often stays where it is.")
    ] = 5,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be sent.")
    ] = False,
    yes: YesOption = False,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Put dead letters back to work, with their budget whole. Nothing is sent without --yes.

    Each is sent once in effect: killed or asked for again, the command goes on where it was. What
    was replayed, discarded or archived before is left out. Exits with 5 where some were not sent.
    """
    asked = {"table": table, "where": where}
    noting = Noting(brokers, "spark replay", because, {**asked, "to": to, "rate": rate})
    order = Order("", to, job_name(), operator(), rate_of(rate), most, max_replays, asked=asked)
    options = brokers.options()
    chosen = _choose(table, where)
    if not chosen:
        typer.secho(f"no dead letter meets --where {where!r}", err=True)
        return
    parts = [_part(options, order, each) for each in chosen]
    carry_out(parts, dry_run=dry_run, yes=yes, as_json=output is Output.json, noting=noting)


def _choose(table: str, where: str) -> list[Chosen]:
    from ackfloor_monitoring.spark.redrive_selection import choose
    from ackfloor_monitoring.spark.setup.session import spark_session
    from ackfloor_monitoring.spark.table import kafka_reads as io
    from ackfloor_monitoring.spark.table import store

    with (
        spark_session("ackfloor spark replay") as spark,
        io.readable_spark_errors(f"the table {table}"),
    ):
        return choose(store.read_failures(spark, table), where)


def _part(options: KafkaOptions, order: Order, chosen: Chosen) -> Part:
    from ackfloor.redrive import RedriveJob

    job = RedriveJob(options, replace(order, dlq=chosen.topic))
    wanted = chosen.of(job.topics.dlq_id)
    return Part(job, wanted, len(chosen) - sum(map(len, wanted.values())))
