"""The command `ackfloor`: names the sub-commands, each in a file of its own.

Data goes to standard output, everything else to standard error. An ackfloor error is one line and
an exit code; any other exception is a bug and keeps its traceback. Packages add command groups
through the entry point group `ackfloor.commands` (a typer app each).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NoReturn

import typer

import ackfloor
from ackfloor.cli.shared.late_commands import Late, late_group
from ackfloor.errors import AckfloorError, SettingError
from ackfloor.runtime.supervision.exit_codes import Exit
from ackfloor.runtime.supervision.standard_streams import lead_closed_streams_nowhere

#: Where each command is, and its help in one line; a test compares that with its own help.
COMMANDS: Final = (
    ("run", "ackfloor.cli.run.run:run", "Run an app's handlers until asked to stop."),
    (
        "demo",
        "ackfloor.cli.setup.demo:demo",
        "Run 20,000 orders through a real Kafka, kill a worker, and reconcile every one of them.",
    ),
    (
        "status",
        "ackfloor.cli.status.status:status",
        "Show what is wrong, the worst first, and the command to type next for each of it.",
    ),
    (
        "lag",
        "ackfloor.cli.progress.lag:lag",
        "Show how far groups are behind: source topics, retry topics and dead letters.",
    ),
    (
        "acks",
        "ackfloor.cli.progress.acks:acks",
        "Show the floor of each partition, what is settled above it, and what it waits for.",
    ),
    (
        "inflight",
        "ackfloor.cli.run.inflight:inflight",
        "Show the records in flight in a run: how long they have run, and how much time is left.",
    ),
    (
        "doctor",
        "ackfloor.cli.setup.doctor:doctor",
        "Check whether a worker can run here: brokers, login, permissions, topics, settings.",
    ),
    ("broker", "ackfloor.cli.setup.broker:broker_app", "A local Kafka in the background."),
    ("policy", "ackfloor.cli.config.policy:policy_app", "Retry policies."),
    ("topics", "ackfloor.cli.setup.topics:topics_app", "Retry and dead-letter topics."),
    ("config", "ackfloor.cli.config.config_show:config_app", "Settings: their values and sources."),
    (
        "breaker",
        "ackfloor.cli.breaker.breaker_commands:breaker_app",
        "The circuit breakers of a run's handlers.",
    ),
    (
        "lanes",
        "ackfloor.cli.lanes.lane_commands:lanes_app",
        "Keys and partitions that wait for a record that failed.",
    ),
    (
        "handlers",
        "ackfloor.cli.handlers.handler_commands:handlers_app",
        "The handlers of runs: list, pause and resume them.",
    ),
    ("retry", "ackfloor.cli.retry.retry_commands:retry_app", "Records in retry topics."),
    (
        "dlq",
        "ackfloor.dead_letters.commands.dlq:dlq_app",
        "List, show, redrive and dispose of dead letters.",
    ),
    (
        "actions",
        "ackfloor.cli.actions.action_commands:actions_app",
        "What operators have done: who, when, what and why.",
    ),
)
#: Of the commands that packages bring, the helps of those that come with ackfloor.
SHORT_HELPS: Final = {
    "ackfloor_monitoring.console.console_commands:console": (
        "Serve a console that shows what is wrong, in a browser."
    ),
    "ackfloor_monitoring.spark.cli:spark_app": "The history of failures, and what it says.",
}


def _commands() -> Iterator[Late]:
    """Our commands, and those that packages bring."""
    from importlib.metadata import entry_points

    yield from (Late.at(*each) for each in COMMANDS)
    for entry in entry_points(group="ackfloor.commands"):
        yield Late(entry.name, entry.load, SHORT_HELPS.get(entry.value))


cli = typer.Typer(
    name="ackfloor",
    cls=late_group(_commands),
    help="A Kafka consumer framework in which one stuck message holds back nothing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Wider lines are hard to read, and what an option means is only a part of one.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Begin with `ackfloor demo`, which shows all of it at work, or with `ackfloor broker up` "
        "and an app of yours. `ackfloor COMMAND --help` explains a command."
    ),
    rich_markup_mode=None,
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the console script.

    Args:
        arguments: those of the command; None for the process's own.
    """
    lead_closed_streams_nowhere()
    try:
        cli(args=arguments, color=_color())
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


def fail(error: Exception, code: int) -> NoReturn:
    """Print an error as one line and exit."""
    typer.secho(f"error: {error}", fg="red", err=True, color=_color())
    sys.exit(int(code))


if __name__ == "__main__":
    main()
