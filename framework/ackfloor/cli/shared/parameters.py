"""Options that several commands share, each with one name, variable and help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ackfloor.cli.shared.command_options import Made
from ackfloor.redrive import kafka_options
from ackfloor.settings import Settings

if TYPE_CHECKING:
    from ackfloor.kafka.client.client_options import KafkaOptions


class Output(StrEnum):
    """The output formats of a command."""

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


class Brokers(NamedTuple):
    """The brokers that a command connects to, from the command line and the settings."""

    servers: str | None = None
    config: Path | None = None

    @classmethod
    def of(cls, bootstrap_servers: ServersOption = None, config: ConfigOption = None) -> Brokers:
        """From the options."""
        return cls(bootstrap_servers, config)

    @property
    def flags(self) -> dict[str, object]:
        """The command line's values for `Settings.load`."""
        return {"kafka.bootstrap_servers": self.servers}

    def settings(self) -> Settings:
        """The settings; raises ConfigError."""
        return Settings.load(flags=self.flags, config=self.config)

    def options(self) -> KafkaOptions:
        """The clients' properties; raises ConfigError."""
        return kafka_options(flags=self.flags, config=self.config)


BrokersOption = Annotated[Brokers, Made(Brokers.of)]
#: The default of that option: the settings name the brokers.
OF_SETTINGS: Final = Brokers()
