"""`ackfloor config set`: change a setting of a run that runs, for as long as it runs."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ackfloor.cli.parameters import Output, OutputOption
from ackfloor.cli.run_address import ControlFailed, ListenOption, address_of
from ackfloor.errors import ConfigError
from ackfloor.live.control import PATH, SCHEME
from ackfloor.live.token import FIELD, read_token, token_path
from ackfloor.runtime.exit_codes import Exit
from ackfloor.settings import Settings

#: Seconds for the run to answer: it waits for its workers.
TIMEOUT_S = 20.0
#: How many running deliveries the table names.
MOST_SHOWN = 20


def set_(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The setting, such as handlers.bill.consume_timeout."),
    ],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="What it is to be, as in ackfloor.toml.")
    ],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Change nothing; show which records in flight it would park."
        ),
    ] = False,
    listen: ListenOption = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="The file with the run's token.", show_default="by the address"),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="ACKFLOOR_CONFIG",
            help="The settings file, which may name address and token file.",
            show_default="ackfloor.toml",
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Change a setting of a run while it runs; it lasts until the run ends.

    It counts more than flags, environment and file. Records in flight go by it at once. The run
    writes its token to a file that only its user can read, and logs where.
    """
    listen, token = credentials(listen, token_file, config_file)
    answer = post(listen, token, {"set": {name: value}, "dry_run": dry_run})
    if output is Output.json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(answer)
    workers = answer["workers"]
    for worker, why in workers["refused"].items():
        typer.secho(f"worker {worker} did not take it: {why}", fg="red", err=True)
    if workers["silent"]:
        silent = ", ".join(map(str, workers["silent"]))
        typer.secho(f"no answer yet from worker {silent}; see /readyz", fg="yellow", err=True)
    if workers["refused"] or workers["silent"]:
        raise typer.Exit(Exit.PARTIAL)


def credentials(
    listen: str | None, token_file: Path | None, config_file: Path | None
) -> tuple[str, str]:
    """Where to ask, and with which token: as given, else as the settings say.

    Raises:
        ControlFailed: what is given is no address, or the token can't be read.
    """
    if listen is not None:
        address_of(listen)
    named = FIELD if token_file is None else "--token-file"
    if listen is None or token_file is None:
        app = Settings.load(config=config_file).app
        listen = listen or app.listen
        token_file = token_file or token_path(listen, app.control_token_file)
    try:
        return listen, read_token(token_file, named)
    except ConfigError as exc:
        raise ControlFailed(str(exc)) from None


def post(listen: str, token: str, tree: object, path: str = PATH) -> Any:
    """Ask the run.

    Args:
        path: which of its controls.

    Raises:
        ControlFailed: nobody answers, or the answer is no.
    """
    host, port = address_of(listen)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    headers = {"Authorization": SCHEME + token, "Content-Type": "application/json"}
    try:
        connection.request("POST", path, json.dumps(tree).encode(), headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        why = f"no run answers at {listen}: {exc}; is it running, and is this its --listen?"
        raise ControlFailed(why) from None
    finally:
        connection.close()
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {}
    if response.status == http.client.OK and isinstance(answer, dict):
        return answer
    why = answer.get("error", "") if isinstance(answer, dict) else ""
    if response.status == http.client.METHOD_NOT_ALLOWED:
        why = 'it takes no settings (app.control = "off", or no ackfloor run)'
    raise ControlFailed(f"{listen} refused ({response.status}): {why or response.reason}")


def _show(answer: Any) -> None:
    would = "would be " if answer["dry_run"] else ""
    if not answer["changed"]:
        typer.echo("nothing changes: it has this value")
    for each in answer["changed"]:
        typer.echo(f"{each['name']}  {each['before'] or 'unset'} -> {each['after'] or 'unset'}")
    told = ", ".join(map(str, answer["workers"]["applied"])) or "none"
    typer.echo(f"{would}applied by worker {told}")
    if answer["ends"]:
        records, were = ("record", "was") if answer["ends"] == 1 else ("records", "were")
        typer.echo(f"{answer['ends']} {records} in flight {would or were + ' '}parked at once")
    if not answer["dry_run"]:
        return
    for each in answer["overdue"][:MOST_SHOWN]:
        place = f"{each['topic']}/{each['partition']}/{each['offset']}"
        running = f"running for {each['running_s']:.1f} s"
        typer.echo(f"  {place}  attempt {each['attempt']}  {each['handler']}  {running}")
    if answer["ends"] > MOST_SHOWN:
        typer.echo(f"  and {answer['ends'] - MOST_SHOWN} more")
