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
