"""The command as a whole: version, help, completion, and how errors end it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import ackfloor as package
from ackfloor.cli.main import cli
from ackfloor.cli.reference.cli_reference import commands
from tests.framework.cli.command import ackfloor, environment, rest_of

#: A section of the settings in a help text.
BRACKETED = re.compile(r"\[[a-z_.]+\]")
E2E = pytest.mark.e2e

COMMANDS = ("run", "demo", "broker", "policy", "topics", "config")


def script() -> str:
    """The installed console script."""
    return str(Path(sys.executable).parent / "ackfloor")


@E2E
def test_the_script_says_its_version() -> None:
    """On standard output, and nothing else."""
    done = subprocess.run(
        [script(), "--version"], capture_output=True, text=True, check=True, env=environment({})
    )
    assert (done.stdout, done.stderr) == (f"ackfloor {package.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(flag: str) -> None:
    """On standard output, with exit code 0."""
    done = CliRunner().invoke(cli, [flag])
    assert done.exit_code == 0
    assert [name for name in COMMANDS if f" {name} " not in done.stdout] == []


def leaves(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command by its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, *path, name)
        else:
            yield " ".join([*path, name]), command


def test_each_flag_says_what_it_does_and_has_a_twin_in_the_environment() -> None:
    """Of every command; so each can be set without touching the command line."""
    found = dict(leaves(typer.main.get_command(cli)))
    assert {"run", "policy preview", "topics apply", "broker up"} <= found.keys()
    for name, command in found.items():
        for option in command.params:
            if option.param_type_name == "option":
                assert option.help, f"{name} {option.opts}"
                assert str(option.envvar).startswith("ACKFLOOR_"), f"{name} {option.opts}"


def test_help_shows_defaults_and_swallows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in brackets would be markup: it is the default that people look for."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(cli, ["run", "--help"]).stdout
    assert "127.0.0.1:9600" in shown
    assert "ackfloor.toml" in shown


def test_help_shows_what_it_has_in_brackets() -> None:
    """Of every command, in full: sections of the settings are written so."""
    for path, command in commands():
        shown = " ".join(CliRunner().invoke(cli, [*path.split()[1:], "--help"]).stdout.split())
        texts = [command.help, *(each.help or "" for each in command.params)]
        for bracketed in BRACKETED.findall(" ".join(texts)):
            assert bracketed in shown, path


def test_no_command_shows_the_help_and_exits_2() -> None:
    """As an unknown command does."""
    assert CliRunner().invoke(cli, []).exit_code == 2
    unknown = CliRunner().invoke(cli, ["rnu"])
    assert unknown.exit_code == 2
    assert "rnu" in unknown.stderr


@E2E
def test_the_shell_completes_commands(tmp_path: Path) -> None:
    """`--show-completion` prints a script for the shell, and what it calls answers."""
    bin_folder = str(Path(sys.executable).parent)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    shown = subprocess.run(
        ["bash", "-c", "ackfloor --show-completion; true"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment({"PATH": path}),
    )
    assert "_ACKFLOOR_COMPLETE=complete_bash" in shown.stdout
    completed = subprocess.run(
        [
            "bash",
            "-c",
            shown.stdout
            + "\nCOMP_WORDS=(ackfloor po); COMP_CWORD=1; _ackfloor_completion ackfloor;"
            + ' echo "${COMPREPLY[@]}"',
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment({"PATH": path}),
    )
    assert completed.stdout.strip() == "policy"


@E2E
def test_an_error_of_ours_is_one_line_and_its_exit_code(tmp_path: Path) -> None:
    """On standard error, nothing on standard output, and no traceback."""
    done = ackfloor("policy", "preview", "nowhere:app", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: no module named 'nowhere' (asked for 'nowhere')\n"


@E2E
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_disk_that_is_full_is_one_line(tmp_path: Path, output: str) -> None:
    """Also when the process ends, and tries once more to write what it has."""
    # What measures coverage would write a file at the end, too, and say that it can't.
    shell = (
        "ulimit -f 0; unset COVERAGE_PROCESS_START COVERAGE_PROCESS_CONFIG;"
        ' exec "$0" -m ackfloor.cli.main config show -o "$1" > full'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable, output], cwd=tmp_path, env=environment({}),
        stderr=subprocess.PIPE, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: standard output can't be written: File too large\n"


@E2E
def test_a_package_that_brings_broken_commands_breaks_no_other(tmp_path: Path) -> None:
    """It is named on standard error, and everything else works."""
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ackfloor.commands]\nbroken = no_such_module:app\n")
    done = ackfloor("--version", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"ackfloor {package.__version__}\n")
    shown = ackfloor("--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert shown.returncode == 0
    assert "  config " in shown.stdout
    used = ackfloor("broken", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert used.returncode == 2
    for told in (shown.stderr, used.stderr):
        assert told.count("warning: the commands 'broken' can't be loaded") == 1
        assert "no_such_module" in told
    worked = ackfloor("config", "show", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (worked.returncode, worked.stderr) == (0, "")


@E2E
@pytest.mark.parametrize(("given", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_is_coloured_unless_it_is_not_to_be(
    tmp_path: Path, given: dict[str, str], coloured: bool
) -> None:
    """As NO_COLOR says, whatever its value."""
    ours, theirs = os.openpty()
    variables = environment({"TERM": "xterm", **given})
    if not given:
        variables.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "ackfloor.cli.main", "inflight", "--listen", "nowhere"]
    try:
        ended = subprocess.run(
            command, cwd=tmp_path, env=variables, stderr=theirs, stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
    finally:
        os.close(theirs)
    said = rest_of(ours)
    assert ended.returncode == 2
    assert "not an address" in said
    assert ("\x1b[31m" in said) is coloured
