"""docs/reference is what the code says, and the command line explains itself."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from ackfloor.cli.main import cli
from ackfloor.cli.reference.cli_reference import commands, options
from ackfloor.settings import Settings
from tests.structure.sources import REPOSITORY

RECIPE = re.compile(r"^\t@\$\(BIN\)/python -m (\S+) > (docs/\S+)$", re.MULTILINE)
#: Page -> the module that `make docs` writes it with.
WRITTEN = {page: module for module, page in RECIPE.findall((REPOSITORY / "Makefile").read_text())}
COMMANDS = dict(commands())
# What they do is done at once; there is nothing to set.
ACTIONS = {"--version", "--install-completion", "--show-completion"}


@pytest.mark.parametrize("page", WRITTEN)
def test_a_reference_page_is_up_to_date(page: str) -> None:
    """It is what `make docs` would write now."""
    done = subprocess.run(
        [sys.executable, "-m", WRITTEN[page]],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert (REPOSITORY / page).read_text() == done.stdout, "run: make docs"


def test_every_reference_page_is_written_by_make_docs() -> None:
    """None is written by hand."""
    pages = (REPOSITORY / "docs" / "reference").glob("*.md")
    assert {page.relative_to(REPOSITORY).as_posix() for page in pages} == set(WRITTEN)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_explains_itself(command: Any) -> None:
    """It says what it does, and so does each of its arguments and options."""
    assert command.help
    assert [each.name for each in command.params if not each.help] == []


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_option_has_a_variable(command: Any) -> None:
    """Its name begins with ours, and setting it is not taken for a misspelt setting."""
    for option in options(command):
        assert isinstance(option.envvar, str), option.opts
        assert option.envvar.startswith("ACKFLOOR_")
        if option.envvar != "ACKFLOOR_CONFIG":
            Settings.load(environment={option.envvar: "1"})


def test_only_actions_have_no_variable() -> None:
    """The options before any command are things to do, not things to set."""
    root: Any = typer.main.get_command(cli)
    assert {option.opts[0] for option in options(root)} == ACTIONS
    assert all(group.help for group in root.commands.values())
