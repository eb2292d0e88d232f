"""Options that several Spark commands share, beside those that they share with other commands."""

from __future__ import annotations

from typing import Annotated

import typer

TableOption = Annotated[
    str,
    typer.Option(
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
# Of the commands that ingest.
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
