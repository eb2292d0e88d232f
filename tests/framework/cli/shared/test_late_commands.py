"""Commands are imported when they are run: the help, the version and completion wait for none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.shared.late_commands import Late, late_group
from tests.framework.cli.command import PATIENCE_S, environment

#: Slow to import, or imported by nothing but what is.
HEAVY = {
    "ackfloor.kafka", "ackfloor.settings", "ackfloor_monitoring", "asyncio", "confluent_kafka",
    "multiprocessing", "prometheus_client", "pydantic", "pyspark", "rich",
}  # fmt: skip
CODE = """
import atexit, json, sys
# What traces the process has imported some before.
before = set(sys.modules)
from ackfloor.cli.main import main
sys.argv[0] = "ackfloor"
atexit.register(lambda: print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr))
main()
"""


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--version"], {}),
        (["--help"], {}),
        (
            [],
            {"_ACKFLOOR_COMPLETE": "complete_bash", "COMP_WORDS": "ackfloor d", "COMP_CWORD": "1"},
        ),
    ],
)
def test_nothing_heavy_is_imported(
    arguments: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    """Not by them, and not by what they do need."""
    ended = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], cwd=tmp_path, env=environment(variables),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    # What completes reads the root's options, and typer may convert those with pydantic.
    of_typer = {"pydantic"} if variables else set[str]()
    assert HEAVY & set(json.loads(ended.stderr.splitlines()[-1])) <= of_typer


def test_the_list_says_what_each_command_says_of_itself() -> None:
    """The table of the list is written by hand."""
    root: Any = typer.main.get_command(cli)
    context = root.make_context("ackfloor", [], resilient_parsing=True)
    listed = {
        name: root.get_command(context, name).get_short_help_str()
        for name in root.list_commands(context)
    }
    own = {name: command.get_short_help_str(400) for name, command in root.commands.items()}
    assert listed == own
    assert len(own) == len(root.commands) > 10


def _app_of(*known: Late) -> typer.Typer:
    app = typer.Typer(cls=late_group(lambda: iter(known)), no_args_is_help=True)

    @app.callback()
    def root() -> None: ...

    return app


def test_one_command_imports_no_other() -> None:
    """It runs, and what stands beside it may even be broken."""

    def hello() -> None:
        typer.echo("hello")

    def broken() -> None:
        raise ImportError("not there")

    app = _app_of(Late("hello", lambda: hello, "Greet."), Late("other", broken, "Of ours."))
    assert CliRunner().invoke(app, ["hello"]).stdout == "hello\n"
    shown = CliRunner().invoke(app, ["--help"])
    assert "Greet." in shown.stdout
    assert "Of ours." in shown.stdout
    # A bug of ours keeps its traceback.
    assert isinstance(CliRunner().invoke(app, ["other"]).exception, ImportError)


def test_of_two_commands_with_one_name_the_first_counts() -> None:
    """A package takes none of ours away."""
    app = _app_of(
        Late("hello", lambda: lambda: typer.echo("ours"), "Greet."),
        Late("hello", lambda: lambda: typer.echo("theirs")),
    )
    assert CliRunner().invoke(app, ["hello"]).stdout == "ours\n"
