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


AppArgument = Annotated[
    str, typer.Argument(help="The app, as MODULE:ATTRIBUTE.", metavar="MODULE:APP")
]
FactoryOption = Annotated[
    bool, typer.Option("--factory", help="APP is a function that returns the app.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most so many.")]
MaxOption = Annotated[int | None, typer.Option("--max", min=1, help="At most so many in all.")]
RateOption = Annotated[str | None, typer.Option(help='At most so many: "50/s" or "3000/m".')]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", envvar="ACKFLOOR_OUTPUT", help="table or json.")
]
OfGroupOption = Annotated[
    str | None,
    typer.Option("--group", envvar="ACKFLOOR_GROUP", help="Those of this consumer group."),
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
ServersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        envvar="ACKFLOOR_BOOTSTRAP_SERVERS",
        help="Brokers to ask first: host:port, comma-separated.",
        show_default="kafka.bootstrap_servers",
    ),
]


def settings_flags(bootstrap_servers: str | None) -> dict[str, object]:
    """What is said on the command line, as `Settings.load` takes it."""
    return {"kafka.bootstrap_servers": bootstrap_servers}
