"""The address of a run, and what it says of itself there."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ackfloor.errors import AckfloorError
from ackfloor.runtime.exit_codes import Exit
from ackfloor.settings import Settings

LAST_PORT = 65_535
#: Seconds for a run to say how it is: it makes the page from what it knows.
STATE_S = 5.0

ListenOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_RUN_LISTEN",
        help="The run's address, as `ackfloor run --listen` has it.",
        show_default="127.0.0.1:9600",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        help="The file with the run's token, as the run's log names it.",
        show_default="the run's own",
    ),
]


class ControlFailed(AckfloorError):
    """The run did not do what was asked."""


class NoAddress(ControlFailed):
    """What was given to find the run by is no address."""

    exit_code = Exit.USAGE


def address_of(listen: str) -> tuple[str, int]:
    """Where to ask; raises NoAddress for what is none."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdecimal() and int(port) <= LAST_PORT):
        raise NoAddress(
            f'--listen={listen!r}: not an address; write host:port, such as "127.0.0.1:9600"'
        )
    # An address that means all of them is this machine for who asks.
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104


def read_state(listen: str | None, config: Path | None) -> Any:
    """What a run says under `/state`.

    Args:
        listen: its address; None for the settings' own.
        config: the settings file.

    Raises:
        ControlFailed: nobody answers, or no run of ackfloor.
    """
    listen = listen or Settings.load(config=config).app.listen
    host, port = address_of(listen)
    connection = http.client.HTTPConnection(host, port, timeout=STATE_S)
    try:
        connection.request("GET", "/state")
        response = connection.getresponse()
        tree = json.loads(response.read())
    except (OSError, http.client.HTTPException) as exc:
        raise ControlFailed(
            f"no run answers at {listen}: {exc}; is it running, and is this its --listen?"
        ) from None
    except ValueError:
        tree = None
    finally:
        connection.close()
    if not isinstance(tree, dict) or not isinstance(tree.get("workers"), dict):
        raise ControlFailed(f"{listen} is no run of ackfloor: it has no /state")
    return tree
