"""The command as a whole: version, help, completion, and how errors end it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ackfloor as package
from tests.framework.cli.command import ackfloor, environment

pytestmark = pytest.mark.e2e

COMMANDS = ("run", "demo", "broker", "policy", "topics", "config")


def script() -> str:
    """The installed console script."""
    return str(Path(sys.executable).parent / "ackfloor")


def test_the_script_says_its_version() -> None:
    """On standard output, and nothing else."""
    done = subprocess.run(
        [script(), "--version"], capture_output=True, text=True, check=True, env=environment({})
    )
    assert (done.stdout, done.stderr) == (f"ackfloor {package.__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(tmp_path: Path, flag: str) -> None:
    """And the help of each exits 0."""
    done = ackfloor(flag, cwd=tmp_path)
    assert done.returncode == 0
    assert [name for name in COMMANDS if f" {name} " not in done.stdout] == []


@pytest.mark.parametrize("command", ["run", "policy preview", "topics plan", "topics apply"])
def test_each_flag_has_a_twin_in_the_environment(tmp_path: Path, command: str) -> None:
    """Said in the help, so that it can be found."""
    done = ackfloor(*command.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0
    flags = done.stdout.count("--") - done.stdout.count("--help")
    twins = done.stdout.count("ACKFLOOR_")
    assert twins >= 1
    assert flags >= 1


def test_no_command_shows_the_help_and_exits_2(tmp_path: Path) -> None:
    """As an unknown command does."""
    assert ackfloor(cwd=tmp_path).returncode == 2
    unknown = ackfloor("rnu", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "rnu" in unknown.stderr
    assert "Traceback" not in unknown.stderr


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


def test_an_error_of_ours_is_one_line_and_its_exit_code(tmp_path: Path) -> None:
    """On standard error, nothing on standard output, and no traceback."""
    done = ackfloor("policy", "preview", "nowhere:app", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: no module named 'nowhere' (asked for 'nowhere')\n"


def test_a_package_that_brings_broken_commands_breaks_no_other(tmp_path: Path) -> None:
    """It is named on standard error, and everything else works."""
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ackfloor.commands]\nbroken = no_such_module:app\n")
    done = ackfloor("--version", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"ackfloor {package.__version__}\n")
    assert "'broken'" in done.stderr
    assert "no_such_module" in done.stderr
