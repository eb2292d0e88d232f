"""The command `ackfloor`: registers the sub-commands, each in a file of its own.

Data goes to standard output, everything else to standard error. An ackfloor error is one line and
an exit code; any other exception is a bug and keeps its traceback. Packages add command groups
through the entry point group `ackfloor.commands` (a typer app each).
"""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

import ackfloor
from ackfloor.cli.breaker.breaker_commands import breaker_app
from ackfloor.cli.config.config_show import config_app
from ackfloor.cli.config.policy import policy_app
from ackfloor.cli.handlers.handler_commands import handlers_app
from ackfloor.cli.lanes.lane_commands import lanes_app
from ackfloor.cli.progress.acks import acks
from ackfloor.cli.progress.lag import lag
from ackfloor.cli.retry.retry_commands import retry_app
from ackfloor.cli.run.inflight import inflight
from ackfloor.cli.run.run import run
from ackfloor.cli.setup.broker import broker_app
from ackfloor.cli.setup.demo import demo
from ackfloor.cli.setup.doctor import doctor
from ackfloor.cli.setup.topics import topics_app
from ackfloor.cli.shared.command_options import Commands
from ackfloor.dead_letters.commands.dlq import dlq_app
from ackfloor.errors import AckfloorError, SettingError
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.standard_streams import lead_closed_streams_nowhere

cli = Commands(
    name="ackfloor",
    variables="{command}",
    help="A Kafka consumer framework in which one stuck message holds back nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Errors of a full disk or an exhausted quota.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ackfloor {ackfloor.__version__}")
        raise typer.Exit


@cli.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A Kafka consumer framework in which one stuck message holds back nothing."""


cli.command()(run)
cli.command()(demo)
cli.add_typer(broker_app, name="broker")
cli.add_typer(policy_app, name="policy")
cli.add_typer(topics_app, name="topics")
cli.add_typer(config_app, name="config")
cli.add_typer(breaker_app, name="breaker")
cli.add_typer(lanes_app, name="lanes")
cli.add_typer(handlers_app, name="handlers")
cli.add_typer(retry_app, name="retry")
cli.add_typer(dlq_app, name="dlq")
cli.command()(lag)
cli.command()(acks)
cli.command()(inflight)
cli.command()(doctor)


def _add_commands_of_packages() -> None:
    for entry in entry_points(group="ackfloor.commands"):
        try:
            cli.add_typer(entry.load(), name=entry.name)
        except Exception as exc:  # noqa: BLE001 -- another package's code may raise anything
            text = f"warning: the commands {entry.name!r} can't be loaded: {exc!r}"
            typer.secho(text, fg="yellow", err=True)


_add_commands_of_packages()


def main() -> None:
    """Run the command line; the console script."""
    lead_closed_streams_nowhere()
    try:
        cli(color=_color())
    except (AckfloorError, SettingError) as exc:
        fail(exc, _code(exc))
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        _full(exc)


def _full(error: OSError) -> None:
    """Fail because the output does not fit; drop the rest, so that exiting does not write it."""
    if error.filename is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    text = f"{error.filename or 'standard output'} can't be written: {error.strerror}"
    fail(AckfloorError(text), Exit.FAILURE)


def _code(error: AckfloorError | SettingError) -> int:
    """The exit code of an error; a refused value of an option is a usage error."""
    if isinstance(error, SettingError):
        source = getattr(error, "source", "")
        if error.field.startswith("--") or source.startswith("flag --"):
            return Exit.USAGE
    return error.exit_code if isinstance(error, AckfloorError) else Exit.START


def _color() -> bool | None:
    """Whether to use colour: never with NO_COLOR; None: on a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def fail(error: Exception, code: int) -> None:
    """Print an error as one line and exit."""
    typer.secho(f"error: {error}", fg="red", err=True, color=_color())
    sys.exit(int(code))


if __name__ == "__main__":
    main()
