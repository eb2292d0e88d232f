"""`ackfloor console`: serves the console until asked to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackfloor import MissingExtra
from ackfloor_monitoring.console.access.tokens import add_token
from ackfloor_monitoring.console.console_options import (
    EntryOptions,
    ListeningOptions,
    ShowingOptions,
)


def console(
    where: ListeningOptions,
    what: ShowingOptions,
    who: EntryOptions,
    add: Annotated[
        str | None,
        typer.Option(
            "--add-token",
            metavar="NAME:ROLE",
            help="Add a token to --token-file, print it, and end. Roles: viewer, reader, operator, "
            "admin.",
        ),
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
) -> None:
    """Serve a console that shows what is wrong, in a browser.

    It asks Kafka and the runs that --run names while somebody looks, and follows the dead-letter
    topics for an index on this machine. An operator moves lanes and pauses handlers there; each
    action is noted in Kafka first, see `ackfloor actions`. Beyond a loopback address, and at a
    --public-url that is none, it needs tokens and TLS, or --proxy. Without either everybody who
    reaches it has --role.
    """
    if add is not None:
        if who.token_file is None:
            raise typer.BadParameter("goes with --token-file", param_hint="--add-token")
        typer.echo(add_token(who.token_file, add))
        return
    host, port = where.place()
    shown, token_files = what.clusters(), what.token_files()
    gate = who.gate(where, host)
    try:
        from ackfloor_monitoring.console.opened_clusters import Indexing
        from ackfloor_monitoring.console.serving import Place, serve
    except ImportError as exc:
        raise MissingExtra("console", "the console") from exc
    place = Place(host, port, where.certificate, where.key)
    serve(place, shown, gate, Indexing(index_folder, index_rows), token_files)
