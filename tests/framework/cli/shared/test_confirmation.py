"""The question before a change: who is asked at a terminal, and what is said where nobody is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner, Result

from ackfloor.cli.shared.confirmation import confirm
from ackfloor.runtime.supervision.exit_codes import Exit

Answer = Callable[[str], Result]


@pytest.fixture
def answer() -> Answer:
    """Ask in a command, with this as standard input."""
    app = typer.Typer()

    @app.command()
    def create() -> None:
        confirm("Create 3 topics?", "3 topics would be created")
        typer.echo("created")

    return lambda text: CliRunner().invoke(app, input=text)


@pytest.mark.parametrize(
    ("typed", "code", "created"),
    [("y\n", 0, True), ("n\n", 2, False), ("\n", 2, False), ("", 2, False)],
)
@pytest.mark.usefixtures("terminal")
def test_only_a_yes_goes_on(answer: Answer, typed: str, code: int, created: bool) -> None:
    """The question is on standard error; silence is a no, and so are its end and Ctrl-C."""
    ended = answer(typed)
    assert "Create 3 topics?" in ended.stderr
    assert (ended.exit_code, "created" in ended.stdout) == (code, created)
    assert ("nothing was done" in ended.stderr) is not created


def test_nobody_is_asked_without_a_terminal(answer: Answer) -> None:
    """What would be done is named, with the option that answers; a piped yes is no answer."""
    ended = answer("y\n")
    assert (ended.exit_code, ended.stdout) == (Exit.USAGE, "")
    assert ended.stderr == "3 topics would be created: confirm with --yes\n"
