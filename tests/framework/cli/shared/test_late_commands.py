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
    "ackfloor.app", "ackfloor.core.engine", "ackfloor.kafka", "ackfloor.runtime.loop",
    "ackfloor.settings", "asyncio", "concurrent.futures", "confluent_kafka", "http.client",
    "http.server", "multiprocessing", "numpy", "pandas", "plotly", "prometheus_client", "pyarrow",
    "pydantic", "pyspark", "rich", "sqlite3", "ssl", "starlette", "urllib.request", "uvicorn",
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
#: The help of every command, one after the other: each says what it is the first to import.
HELPS = """
import contextlib, io, json, sys
from ackfloor.cli.main import cli, main
import typer

heavy = set(json.loads(sys.argv[1]))
sys.argv[0] = "ackfloor"

def paths(command, path=()):
    yield path
    for name in getattr(command, "commands", ()):
        yield from paths(command.commands[name], (*path, name))

found, first = {}, set(sys.modules)
for path in paths(typer.main.get_command(cli)):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*path, "--help"])
    assert said.getvalue().startswith("Usage:"), path
    found[" ".join(path)] = sorted(heavy & set(sys.modules) - first)
    first |= set(found[" ".join(path)])
print(json.dumps(found))
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
    imported = set(json.loads(ended.stderr.splitlines()[-1]))
    assert (HEAVY | {"ackfloor_monitoring"}) & imported == set()


@pytest.mark.e2e
def test_the_help_of_no_command_imports_what_only_its_work_needs(tmp_path: Path) -> None:
    """Who reads a help waits for no Kafka client, no settings and no HTTP."""
    ended = subprocess.run(
        [sys.executable, "-c", HELPS, json.dumps(sorted(HEAVY))], cwd=tmp_path,
        env=environment({}), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert {path: modules for path, modules in found.items() if modules} == {}
    assert {"run", "dlq replay", "retry promote", "spark report", "console"} <= set(found)


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
