"""Options that several Spark commands share, beside those that they share with other commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.core.values.durations import parse_duration
from ackfloor_monitoring.spark.setup.kafka_options import connection_options
from ackfloor_monitoring.spark.setup.session import require_pyspark
from ackfloor_monitoring.spark.table.table_path import absolute_path

if TYPE_CHECKING:
    from ackfloor.settings import Settings
    from ackfloor_monitoring.spark.table.ingest import IngestPlan


def whole_path(table: str) -> str:
    """The table's path from the root on.

    Raises:
        BadParameter: as `absolute_path` says.
    """
    try:
        return absolute_path(table)
    except ValueError as refused:
        raise typer.BadParameter(str(refused)) from None


TableOption = Annotated[
    str,
    typer.Option(
        callback=whole_path,
        envvar="ACKFLOOR_SPARK_TABLE",
        help="Where the table of failures is: a folder, or any path that Spark can write to.",
    ),
]
OneGroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        envvar="ACKFLOOR_GROUP",
        help="Only the topics of this consumer group.",
        show_default="every group",
    ),
]
FailedGroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        envvar="ACKFLOOR_GROUP",
        help="Only this consumer group.",
        show_default="every group",
    ),
]
# Of the commands that only read the table.
OneClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar="ACKFLOOR_SPARK_CLUSTER",
        help="Only the rows of this Kafka cluster, in a table of several.",
        show_default="every cluster",
    ),
]
# Of the commands that ingest.
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar="ACKFLOOR_SPARK_CLUSTER",
        help="The name of this Kafka cluster, in a table of several; rows have it in the column "
        "`cluster`.",
        show_default="the table holds one cluster, without a name",
    ),
]
EveryOption = Annotated[
    str,
    typer.Option(
        "--every", envvar="ACKFLOOR_SPARK_INGEST_EVERY", help="The time from one batch to the next."
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        "--keep",
        envvar="ACKFLOOR_SPARK_INGEST_KEEP",
        help="How long failures are kept, such as 90d; whole days go.",
        show_default="for ever",
    ),
]
MaxRecordsOption = Annotated[
    int,
    typer.Option(
        "--max-records",
        envvar="ACKFLOOR_SPARK_INGEST_MAX_RECORDS",
        min=1,
        help="The records of one batch.",
    ),
]


def ingest_plan(
    settings: Settings,
    table: str,
    group: str | None,
    every: str = "10s",
    keep: str | None = None,
    at_most: int = 500_000,
    *,
    once: bool = False,
    cluster: str | None = None,
) -> IngestPlan:
    """The ingest that these options ask for.

    Raises:
        ConfigError, SettingError, MissingExtra: as they say.
    """
    every_s = parse_duration(every, field="--every")
    keep_s = parse_duration(keep, field="--keep") if keep else None
    kafka, rules = connection_options(settings.kafka), settings.redaction.rules()
    require_pyspark()
    from ackfloor_monitoring.spark.table import kafka_reads as io
    from ackfloor_monitoring.spark.table.clusters import checked_name
    from ackfloor_monitoring.spark.table.ingest import IngestPlan

    pattern = io.group_pattern(group)
    named = None if cluster is None else checked_name(cluster, "--cluster")
    return IngestPlan(table, kafka, pattern, rules, once, every_s, keep_s, at_most, named)
