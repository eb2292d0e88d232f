"""Options that several commands share, each with one name, variable and help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from ackfloor.cli.shared.command_options import Made
from ackfloor.core.parking.topic_names import check_group
from ackfloor.errors import ConfigError, SettingError
from ackfloor.redrive import MAX_REPLAYS, TO_RETRY, kafka_options

if TYPE_CHECKING:
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.settings import Settings


class Output(StrEnum):
    """The output formats of a command."""

    table = "table"
    json = "json"


AppArgument = Annotated[
    str,
    typer.Argument(help="The app, as MODULE:ATTRIBUTE, such as billing:app.", metavar="MODULE:APP"),
]
FactoryOption = Annotated[
    bool, typer.Option("--factory", help="APP is a function that returns the app.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most so many.")]
MaxOption = Annotated[int | None, typer.Option("--max", min=1, help="At most so many in all.")]
RateOption = Annotated[str | None, typer.Option(help='At most so many: "50/s" or "3000/m".')]
ToOption = Annotated[
    str | None,
    typer.Option(
        help="`retry`: the first retry topic, so that only this group sees them; `source`: the "
        "topic they came from; or a topic.",
        show_default=TO_RETRY,
    ),
]
MaxReplaysOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="What was replayed so often stays where it is.",
        show_default=str(MAX_REPLAYS),
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="JOB",
        help="Go on with this job, which `dlq jobs` names: what it was asked for, and no more.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", envvar="ACKFLOOR_OUTPUT", help="table or json.")
]
OfGroupOption = Annotated[
    str | None,
    typer.Option("--group", envvar="ACKFLOOR_GROUP", help="Those of this consumer group."),
]
FileOption = Annotated[
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


SectionOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        envvar="ACKFLOOR_GROUP",
        help="The app of this consumer group: its section of the settings counts as well.",
        show_default="the top level alone",
    ),
]


TlsCaOption = Annotated[
    Path | None,
    typer.Option(
        envvar="ACKFLOOR_RUN_TLS_CA",
        exists=True,
        dir_okay=False,
        help="Whom to trust at an https address of a run: a file of certificates.",
        show_default="app.tls_ca, else the system's",
    ),
]


class SettingsSource(NamedTuple):
    """Where a command reads the settings of an app: the file, and the group that has a section.

    Attributes:
        tls_ca: whom to trust at an https address of a run.
    """

    config: Path | None = None
    group: str | None = None
    tls_ca: Path | None = None

    @classmethod
    def of_runs(
        cls, config: FileOption = None, group: SectionOption = None, tls_ca: TlsCaOption = None
    ) -> SettingsSource:
        """From the options of a command that asks a run."""
        return cls(config, group, tls_ca)

    @property
    def flags(self) -> dict[str, object]:
        """The command line's values for `Settings.load`.

        Another tool's group may have a name that no app can have, and so no section.
        """
        given: dict[str, object] = {} if self.tls_ca is None else {"app.tls_ca": str(self.tls_ca)}
        try:
            check_group(self.group or "")
        except SettingError:
            return given
        return {**given, "app.group": self.group}

    def load(self) -> Settings:
        """The settings; raises ConfigError."""
        from ackfloor.settings import Settings

        return Settings.load(flags=self.flags, config=self.config)

    def refuse_unless_of(self, settings: Settings) -> None:
        """Refuse a group that is not that of the named app; raises ConfigError."""
        if self.group not in (None, settings.app.group):
            why = f"the app's group is {settings.app.group!r}"
            raise ConfigError("--group", self.group, why, "leave it out: the app has its group")


#: Of a command that asks a run.
RunConfigOption = Annotated[SettingsSource | None, Made(SettingsSource.of_runs)]


class Brokers(NamedTuple):
    """The brokers that a command connects to, from the command line and the settings.

    Attributes:
        tls_ca: whom to trust at an https address of a run, where it asks runs as well.
    """

    servers: str | None = None
    config: Path | None = None
    group: str | None = None
    tls_ca: Path | None = None

    @classmethod
    def of(
        cls,
        bootstrap_servers: ServersOption = None,
        config: FileOption = None,
        group: SectionOption = None,
    ) -> Brokers:
        """From the options."""
        return cls(bootstrap_servers, config, group)

    @classmethod
    def of_runs(
        cls,
        bootstrap_servers: ServersOption = None,
        config: FileOption = None,
        group: SectionOption = None,
        tls_ca: TlsCaOption = None,
    ) -> Brokers:
        """From the options of a command that asks runs as well."""
        return cls(bootstrap_servers, config, group, tls_ca)

    @classmethod
    def of_app(cls, bootstrap_servers: ServersOption = None, config: FileOption = None) -> Brokers:
        """From the options of a command that names an app, which has its group."""
        return cls(bootstrap_servers, config)

    @property
    def flags(self) -> dict[str, object]:
        """The command line's values for `Settings.load`."""
        return {"kafka.bootstrap_servers": self.servers, **self.source.flags}

    @property
    def source(self) -> SettingsSource:
        """Where the settings are read that are not about brokers."""
        return SettingsSource(self.config, self.group, self.tls_ca)

    def settings(self) -> Settings:
        """The settings; raises ConfigError."""
        from ackfloor.settings import Settings

        return Settings.load(flags=self.flags, config=self.config)

    def options(self) -> KafkaOptions:
        """The clients' properties; raises ConfigError."""
        return kafka_options(flags=self.flags, config=self.config)


BrokersOption = Annotated[Brokers, Made(Brokers.of)]
#: Of a command that asks runs as well.
RunBrokersOption = Annotated[Brokers, Made(Brokers.of_runs)]
AppBrokersOption = Annotated[Brokers, Made(Brokers.of_app)]
#: The default of that option: the settings name the brokers.
OF_SETTINGS: Final = Brokers()
