"""The options of `ackfloor run` that are settings, and all of them as a command line has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ackfloor.cli.shared.command_options import Made
from ackfloor.cli.shared.parameters import ServersOption


def given_settings(
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes.", show_default="1")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Where /metrics, /livez, /readyz and /state are served, as HOST:PORT.",
            show_default="127.0.0.1:9600",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Serve them over TLS with this certificate, and those it is signed by.",
            show_default="app.tls_certificate, else plain HTTP",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="The certificate's key.",
            show_default="in the same file",
        ),
    ] = None,
    bootstrap_servers: ServersOption = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text or json.", show_default="text")
    ] = None,
) -> dict[str, str | int]:
    """The settings that were given, by name."""
    flags = {
        "kafka.bootstrap_servers": bootstrap_servers,
        "app.workers": workers,
        "app.listen": listen,
        "app.tls_certificate": None if tls_certificate is None else str(tls_certificate),
        "app.tls_key": None if tls_key is None else str(tls_key),
        "app.log_level": log_level,
        "app.log_format": log_format,
    }
    return {name: value for name, value in flags.items() if value is not None}


GivenSettings = Annotated[dict[str, str | int], Made(given_settings)]


def given_options(context: typer.Context) -> Mapping[str, object]:
    """Flag -> value, of the options of the command that is running, and of those not given None."""
    options = [each for each in context.command.params if each.param_type_name == "option"]
    return {each.opts[0]: context.params[each.name] for each in options}
