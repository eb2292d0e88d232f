"""`ackfloor spark migrate`: a table of an earlier release is as this one makes them."""

from __future__ import annotations

from typing import Annotated

import typer

from ackfloor_monitoring.spark.cli.parameters import TableOption
from ackfloor_monitoring.spark.setup.session import require_pyspark, spark_session


def migrate(
    table: TableOption,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="The Kafka cluster of the rows that name none, before the table takes up a second "
            "cluster.",
            show_default="as it is",
        ),
    ] = None,
) -> None:
    """Add the columns that a table of an earlier release lacks, and name the cluster of its rows.

    No file is rewritten, and the table keeps its version. Every ingest adds lacking columns by
    itself; one that is running meanwhile goes on.
    """
    require_pyspark()
    from ackfloor_monitoring.spark.table import store
    from ackfloor_monitoring.spark.table.clusters import checked_name, name_rows

    name = None if cluster is None else checked_name(cluster, "--cluster")
    with spark_session("ackfloor spark migrate") as spark:
        added = store.add_columns(spark, table)
        typer.echo(f"added {', '.join(added)}" if added else "no column was lacking")
        if name is not None:
            name_rows(spark, table, name)
            typer.echo(f"rows that name no cluster are of {name}; each ingest has to name its own")
