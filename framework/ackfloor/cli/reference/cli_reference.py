"""The reference of the command line as Markdown, walked from the commands themselves.

    python -m ackfloor.cli.reference.cli_reference > docs/reference/cli.md

Commands of other distributions (entry point group `ackfloor.commands`) are left out: what is
installed beside us must not change the page. A test compares the file with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import typer

from ackfloor.cli.main import cli
from ackfloor.runtime.supervision.exit_codes import Exit

_OURS: Final = ("ackfloor.", "ackfloor_monitoring.")
_HEAD: Final = """\
# Command line

<!-- Written by `python -m ackfloor.cli.reference.cli_reference`; change the commands. -->

Data goes to standard output, everything else to standard error. Every option has an environment
variable; the option on the command line is stronger. Four options of `run` are settings as well
([configuration](config.md)): `--workers`, `--listen`, `--log-level` and `--log-format` overrule
`app.workers` and so on, from wherever those come. A text that is not UTF-8 is refused.

A row of a table is one line. Where a terminal is too narrow, a table leaves out the columns that it
then names on standard error; names, places and fingerprints are never cut or folded. A pipe gets
all columns in full.

`ackfloor --version` prints the version, `ackfloor --install-completion` sets up completion for
your shell, and `-h` or `--help` explains any command.
"""

_EXIT_CODES: Final = {
    Exit.OK: "Done. For `run`: stopped in order, because it was asked to.",
    Exit.FAILURE: "It failed. For `run`: a worker failed while it was stopping. For `demo`: "
    "something does not add up. For `doctor`: a check failed.",
    Exit.USAGE: "Wrong usage, a bad value of an option or its variable included, or a confirmation "
    "(`--yes`) is missing or was not given. `topics plan "
    "--detailed-exitcode`: something is to be created.",
    Exit.START: "The app can't be imported, or a setting (of the file or the environment), a "
    "handler or a topic's name is refused, by the broker as well. Nothing was handled.",
    Exit.KAFKA_UNREACHABLE: "No broker answered, or none within `--connect-timeout`.",
    Exit.PARTIAL: "Part of the work was done. `config set` and `breaker`: a worker refused the "
    "change, or has not answered yet.",
    Exit.FORCED: "`run` was forced to stop: handlers were cut short or a worker was killed, and "
    "their records come again.",
    Exit.NOT_READY: "What the start needs is not there: a topic is missing, or the app's lifespan "
    "failed. Nothing was handled; started again, it may work.",
    Exit.WORN_OUT: "Between a worker process and `run` only: too many abandoned handlers, replace "
    "me at once.",
    Exit.FENCED: "Between a worker process and `run` only: another process has taken this worker's "
    "name in the group.",
    Exit.HELD_UP: "Between a worker process and `run` only: this worker's name in the group is not "
    "free yet.",
}


def render() -> str:
    """The whole page."""
    parts = [_HEAD]
    parts += [_section(path, command) for path, command in commands()]
    parts += ["## Exit codes\n", _exit_codes()]
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of ours with its full name, in the order of `--help`."""
    yield from _below("ackfloor", typer.main.get_command(cli))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        if command.callback.__module__.startswith(_OURS):
            yield path, command
        return
    for name, each in inner.items():
        yield from _below(f"{path} {name}", each)


def options(command: Any) -> list[Any]:
    """A command's options, without `--help`."""
    return [each for each in command.params if each.param_type_name == "option"]


def _section(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([path, *(each.metavar for each in arguments), "[OPTIONS]"])
    lines = [f"## `{path}`\n", f"    {usage}\n", f"{command.help}\n"]
    given = [_row(each) for each in (*arguments, *options(command))]
    if given:
        head = ["| argument or option | variable | default | meaning |", "|---|---|---|---|"]
        lines.append("\n".join([*head, *given]) + "\n")
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    names = [parameter.metavar] if parameter.param_type_name == "argument" else _names(parameter)
    variable = f"`{parameter.envvar}`" if parameter.envvar else ""
    shown = ", ".join(f"`{name}`" for name in names)
    return f"| {shown} | {variable} | {_default(parameter)} | {parameter.help or ''} |"


def _names(option: Any) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _default(parameter: Any) -> str:
    value = parameter.default
    default = getattr(parameter, "show_default", None)
    if isinstance(default, str):
        return f"`{default}`"
    if value is None or value is False:
        return ""
    if value is True:
        return f"`{parameter.opts[0]}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _exit_codes() -> str:
    lines = ["| code | meaning |", "|---:|---|"]
    lines += [f"| {int(code)} | {_EXIT_CODES[code]} |" for code in Exit]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
