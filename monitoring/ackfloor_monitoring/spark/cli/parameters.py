"""Options that several commands share, each with its one name, variable and explanation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Output(StrEnum):
    """How a command prints what it found."""

    table = "table"
    json = "json"


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", envvar="ACKFLOOR_OUTPUT", help="table or json.")
]
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
BootstrapServersOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_BOOTSTRAP_SERVERS",
        help="Brokers to ask first: host:port, comma-separated.",
        show_default="kafka.bootstrap_servers",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="ACKFLOOR_CONFIG",
        help="The settings file.",
        show_default="ackfloor.toml",
    ),
]


def settings_flags(bootstrap_servers: str | None) -> dict[str, object]:
    """What is said on the command line, as `Settings.load` takes it."""
    return {"kafka.bootstrap_servers": bootstrap_servers}
