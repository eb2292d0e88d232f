"""The help of each command says what to type, in lines that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.shared import command_options
from ackfloor.settings import names
from tests.framework.cli.command import ackfloor


def _commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that are no groups, each with the words that call it."""
    groups = getattr(command, "commands", None)
    if groups is None:
        yield path, command
        return
    for name in groups:
        yield from _commands(groups[name], *path, name)


COMMANDS = dict(_commands(typer.main.get_command(cli)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_usage_is_what_is_typed(path: tuple[str, ...]) -> None:
    """An argument as it is called, without brackets around its own, and no type of Python."""
    shown = CliRunner().invoke(cli, [*path, "--help"], prog_name="ackfloor")
    assert shown.exit_code == 0
    usage = " ".join(shown.stdout.partition("\n\n")[0].split())
    arguments = [
        each.metavar for each in COMMANDS[path].params if each.param_type_name == "argument"
    ]
    assert usage == " ".join(["Usage: ackfloor", *path, "[OPTIONS]", *arguments])
    assert "list[" not in shown.stdout
    assert " range>" not in shown.stdout
    for name in arguments:
        (said,) = (line for line in shown.stdout.splitlines() if line.startswith(f"  {name}"))
        assert not said.removeprefix(f"  {name}").lstrip().startswith("<")


@pytest.mark.e2e
def test_a_wide_terminal_has_wider_lines_that_can_be_read(tmp_path: Path) -> None:
    """Up to 100 characters, and what fits into a narrow one."""
    widths = {
        columns: max(
            map(len, ackfloor("lag", "--help", cwd=tmp_path, COLUMNS=columns).stdout.splitlines())
        )
        for columns in ("60", "80", "160")
    }
    assert widths["60"] <= 60
    assert 60 < widths["80"] <= 80
    assert 80 < widths["160"] <= 100


def test_the_first_page_says_where_to_begin() -> None:
    """To who has just installed it."""
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).stdout.split())
    assert "Begin with `ackfloor demo`" in shown
    assert "`ackfloor COMMAND --help`" in shown


def test_the_variables_of_options_and_of_settings_begin_alike() -> None:
    """Help imports no settings, so both have the word that all of them begin with."""
    assert command_options.PREFIX == names.PREFIX
