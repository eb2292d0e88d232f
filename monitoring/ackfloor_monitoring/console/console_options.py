"""The options of `ackfloor console`, in groups: where it listens, what it shows, who comes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ackfloor import ConfigError
from ackfloor.cli.shared.command_options import Made
from ackfloor.cli.shared.parameters import OF_SETTINGS, Brokers, RunBrokersOption
from ackfloor.operations.run_client import NoAddress
from ackfloor_monitoring.console.access.binding import refuse_unsafe, refuse_unsafe_url
from ackfloor_monitoring.console.access.gate import Gate
from ackfloor_monitoring.console.access.hosts import own_names, public_url
from ackfloor_monitoring.console.access.proxies import proxies_of
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.reads.runs.run_names import checked
from ackfloor_monitoring.console.shown_clusters import ONLY, ShownCluster, shown_clusters


class Listening(NamedTuple):
    """Where the console listens.

    Attributes:
        address: as it was given.
        certificate: for TLS; None for none.
        key: of the certificate; None where that file has it, too.
    """

    address: str
    certificate: Path | None
    key: Path | None

    def place(self) -> tuple[str, int]:
        """Host and port; refuses what is wrong whatever there is to show.

        Raises:
            ConfigError: an address is none.
            BadParameter: a key has no certificate.
        """
        from ackfloor_monitoring.serving.http_server import parse_listen

        if self.key is not None and self.certificate is None:
            raise typer.BadParameter("goes with --tls-certificate", param_hint="--tls-key")
        try:
            return parse_listen(self.address)
        except ConfigError as exc:
            raise ConfigError("--listen", self.address, exc.why, exc.fix) from None


class Showing(NamedTuple):
    """What the console shows, as it was given.

    Attributes:
        names: of the clusters.
        tokens: the files of tokens of runs, each ADDRESS=FILE.
        servers: of Prometheus.
        brokers: how a single cluster is reached.
    """

    runs: Sequence[str]
    tokens: Sequence[str]
    names: Sequence[str]
    reports: Sequence[str]
    servers: Sequence[str]
    brokers: Brokers

    def clusters(self) -> Sequence[ShownCluster]:
        """The clusters, with what is shown beside them.

        Raises:
            BadParameter: options don't fit together.
            ConfigError: one can't be what it is given for.
        """
        from ackfloor_monitoring.console.shown_beside import with_others

        found = shown_clusters(self.names, self.runs, self.brokers)
        return with_others(found, self.reports, self.servers)

    def token_files(self) -> Mapping[str, Path]:
        """The address of a run -> the file of its token; raises BadParameter."""
        return dict(_token_file(each) for each in self.tokens)


class Entry(NamedTuple):
    """Who may come in.

    Attributes:
        role: of everybody who reaches a console without tokens; None where nothing was given.
        url: the address that browsers use; None for its own.
        proxy: addresses and networks.
        proxy_user: the header that names people.
        proxy_role: the header that has their role.
        proxy_address: the header that says from where a request came.
    """

    token_file: Path | None
    role: Role | None
    url: str | None
    proxy: Sequence[str]
    proxy_user: str | None
    proxy_role: str | None
    proxy_address: str | None

    def gate(self, listening: Listening, host: str) -> Gate:
        """What lets them in.

        Args:
            host: at which the console listens.

        Raises:
            ConfigError: anybody could come in, or read tokens on the way; or an address is none.
            BadParameter: options don't fit together.
        """
        everybody = self.role or Role.reader
        proxies = proxies_of(
            self.proxy, self.proxy_user, self.proxy_role, everybody, self.proxy_address
        )
        refuse_unsafe(
            listening.address, host, self.token_file, listening.certificate, self.role, proxies
        )
        public = None if self.url is None else public_url(self.url)
        if self.url is not None and public is not None:
            refuse_unsafe_url(self.url, public, self.token_file, proxies)
        secure = listening.certificate is not None if public is None else public.scheme == "https"
        names = own_names(host, public)
        return Gate(
            names, secure=secure, token_file=self.token_file, role=everybody, proxies=proxies
        )


def listening(
    listen: Annotated[
        str, typer.Option(help="The address of the console: host:port.")
    ] = "127.0.0.1:9700",
    tls_certificate: Annotated[
        Path | None, typer.Option(help="The console's certificate, with those it is signed by.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's key.", show_default="in the same file")
    ] = None,
) -> Listening:
    """Where it listens."""
    return Listening(listen, tls_certificate, tls_key)


def showing(
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="The address of a run to show, as `ackfloor run --listen` has it, where it has "
            "TLS https://HOST:PORT, or dns+NAME:PORT or dns+https://NAME:PORT for a run at each "
            "address of a name; with several clusters NAME=ADDRESS; repeatable.",
            show_default="the one in the settings",
        ),
    ] = None,
    run_token_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS=FILE",
            help="The file with a run's token, for its settings and for what an operator does; "
            "repeatable.",
            show_default="the run's own",
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=FILE]",
            help="What this Kafka cluster is called in the console's addresses; of several each, "
            "with its settings file; repeatable.",
            show_default=ONLY,
        ),
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="The report that `ackfloor spark report --html` writes, to be shown; with several "
            "clusters NAME=FILE; repeatable.",
            show_default="none",
        ),
    ] = None,
    prometheus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A Prometheus that scrapes the runs: plots of the last hour are its figures; with "
            "several clusters NAME=URL; repeatable.",
            show_default="the console's own figures, since its start",
        ),
    ] = None,
    brokers: RunBrokersOption = OF_SETTINGS,
) -> Showing:
    """What it shows."""
    return Showing(
        run or (), run_token_file or (), cluster or (), report or (), prometheus or (), brokers
    )


def entry(
    token_file: Annotated[
        Path | None, typer.Option(help="Who may log in, and as what: a file of tokens.")
    ] = None,
    role: Annotated[
        Role | None,
        typer.Option(
            help="The role of everybody who reaches a console without tokens.",
            show_default="reader",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--public-url",
            help="The address that browsers use, where a proxy is in front of the console; beyond "
            "this machine https, with --token-file or --proxy.",
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A reverse proxy that logs people in: its address or network; repeatable.",
        ),
    ] = None,
    proxy_user: Annotated[
        str | None,
        typer.Option(metavar="HEADER", help="The header in which --proxy names people."),
    ] = None,
    proxy_role: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER",
            help="The header in which --proxy has their role.",
            show_default="--role for everybody",
        ),
    ] = None,
    proxy_address: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER",
            help="The header in which --proxy says from where a request came, such as "
            "X-Forwarded-For: notes of actions have that address.",
            show_default="the proxy's own address is noted",
        ),
    ] = None,
) -> Entry:
    """Who may come in."""
    return Entry(token_file, role, url, proxy or (), proxy_user, proxy_role, proxy_address)


ListeningOptions = Annotated[Listening, Made(listening)]
ShowingOptions = Annotated[Showing, Made(showing)]
EntryOptions = Annotated[Entry, Made(entry)]


def _token_file(given: str) -> tuple[str, Path]:
    """The address of a run, and the file of its token; raises BadParameter for anything else."""
    address, _, file = given.partition("=")
    if not file:
        why = f"{given!r} names no file: write 127.0.0.1:9600=/run/secrets/token"
        raise typer.BadParameter(why, param_hint="--run-token-file")
    try:
        checked(address)
    except NoAddress as exc:
        why = str(exc).replace("--listen", "--run-token-file")
        raise typer.BadParameter(why, param_hint="--run-token-file") from exc
    return address, Path(file)
