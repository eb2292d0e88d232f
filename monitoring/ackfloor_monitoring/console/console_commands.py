"""`ackfloor console`: serves the console until asked to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackfloor import ConfigError, MissingExtra
from ackfloor.cli.shared.parameters import OF_SETTINGS, RunBrokersOption
from ackfloor.operations.run_client import NoAddress
from ackfloor_monitoring.console.access.binding import refuse_unsafe
from ackfloor_monitoring.console.access.gate import Gate
from ackfloor_monitoring.console.access.hosts import own_names, public_url
from ackfloor_monitoring.console.access.proxies import proxies_of
from ackfloor_monitoring.console.access.roles import Role
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.reads.runs.run_names import checked
from ackfloor_monitoring.console.shown_beside import with_others
from ackfloor_monitoring.console.shown_clusters import ONLY, shown_clusters
from ackfloor_monitoring.serving.http_server import parse_listen


def console(
    listen: Annotated[
        str, typer.Option(help="The address of the console: host:port.")
    ] = "127.0.0.1:9700",
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
    token_file: Annotated[
        Path | None, typer.Option(help="Who may log in, and as what: a file of tokens.")
    ] = None,
    add: Annotated[
        str | None,
        typer.Option(
            "--add-token",
            metavar="NAME:ROLE",
            help="Add a token to --token-file, print it, and end. Roles: viewer, reader, operator, "
            "admin.",
        ),
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
            help="The address that browsers use, where a proxy is in front of the console.",
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
    tls_certificate: Annotated[
        Path | None, typer.Option(help="The console's certificate, with those it is signed by.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's key.", show_default="in the same file")
    ] = None,
    index_folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the index is: a folder that nobody else can write.",
            show_default="console in the user's state folder",
        ),
    ] = None,
    index_rows: Annotated[
        int,
        typer.Option(
            min=1_000,
            help="So many dead letters are indexed, and as many records of retry topics; the "
            "oldest go first.",
        ),
    ] = 2_000_000,
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
) -> None:
    """Serve a console that shows what is wrong, in a browser.

    It asks Kafka and the runs that --run names while somebody looks, and follows the dead-letter
    topics for an index on this machine. An operator moves lanes and pauses handlers there; each
    action is noted in Kafka first, see `ackfloor actions`. Beyond a loopback address it needs
    tokens and TLS, or --proxy. Without either everybody who reaches it has --role.
    """
    if add is not None:
        if token_file is None:
            raise typer.BadParameter("goes with --token-file", param_hint="--add-token")
        typer.echo(add_token(token_file, add))
        return
    host, port = _checked(listen, tls_certificate, tls_key)
    clusters = shown_clusters(cluster or (), run or (), brokers)
    shown = with_others(clusters, report or (), prometheus or ())
    token_files = dict(_token_file(each) for each in run_token_file or ())
    everybody = role or Role.reader
    proxies = proxies_of(proxy or (), proxy_user, proxy_role, everybody)
    refuse_unsafe(listen, host, token_file, tls_certificate, role, proxies)
    public = None if url is None else public_url(url)
    try:
        from ackfloor_monitoring.console.opened_clusters import Indexing
        from ackfloor_monitoring.console.serving import Place, serve
    except ImportError as exc:
        raise MissingExtra("console", "the console") from exc
    place = Place(host, port, tls_certificate, tls_key)
    secure = place.secure if public is None else public.scheme == "https"
    names = own_names(host, public)
    gate = Gate(names, secure=secure, token_file=token_file, role=everybody, proxies=proxies)
    serve(place, shown, gate, Indexing(index_folder, index_rows), token_files)


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


def _checked(listen: str, certificate: Path | None, key: Path | None) -> tuple[str, int]:
    """Host and port of the console; refuses options that are wrong whatever there is to show.

    Raises:
        ConfigError: an address is none.
        BadParameter: a key has no certificate.
    """
    if key is not None and certificate is None:
        raise typer.BadParameter("goes with --tls-certificate", param_hint="--tls-key")
    try:
        return parse_listen(listen)
    except ConfigError as exc:
        raise ConfigError("--listen", listen, exc.why, exc.fix) from None
