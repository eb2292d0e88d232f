"""`--config` and `--bootstrap-servers` are options of every command that reads what they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.cli.reference.cli_reference import commands, options
from ackfloor.runtime.supervision.exit_codes import Exit
from tests.framework.cli.command import ackfloor

#: Commands that read no settings.
WITHOUT_SETTINGS = {
    *("demo", "broker up", "broker down", "broker status"),
    *("broker topic", "broker prepare"),
    *("spark jars", "spark prepare", "spark forget"),
    *("spark maintain", "spark migrate"),
}
#: Commands that read settings and connect to no broker: they ask a run, or nobody.
WITHOUT_BROKERS = {
    *("inflight", "policy show", "policy preview", "config set", "config show"),
    *("breaker show", "breaker open", "breaker close", "breaker auto"),
    *("lanes ls", "lanes retry", "lanes delay", "lanes park", "lanes dead-letter"),
    *("lanes discard", "handlers ls", "handlers pause", "handlers resume"),
}
APP = """
from ackfloor import App
app = App("billing")

@app.handler("orders")
async def bill(order: bytes) -> None: ...
"""
#: A port on which nobody listens.
NOBODY = "127.0.0.1:1"


def _lack(option: str) -> set[str]:
    return {
        path.removeprefix("ackfloor ")
        for path, command in commands()
        if not any(option in each.opts for each in options(command))
    }


def test_every_command_that_reads_settings_takes_their_file() -> None:
    """Else it would read those of the working directory, unlike the command before it."""
    assert _lack("--config") == WITHOUT_SETTINGS


def test_every_command_that_connects_takes_its_brokers() -> None:
    """Else it would ask another cluster than the command before it."""
    assert _lack("--bootstrap-servers") == WITHOUT_SETTINGS | WITHOUT_BROKERS


@pytest.mark.parametrize(
    "command",
    [
        ["run", "shop:app", "--connect-timeout", "100ms", "--listen", "127.0.0.1:0"],
        ["topics", "plan", "shop:app", "--connect-timeout", "100ms"],
        ["topics", "apply", "shop:app", "--connect-timeout", "100ms", "--yes"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_option_is_stronger_than_the_file(command: list[str], tmp_path: Path) -> None:
    """The brokers that are given are asked, and named as given."""
    (tmp_path / "shop.py").write_text(APP, "utf-8")
    file = tmp_path / "elsewhere.toml"
    file.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:2"\n', "utf-8")
    from_file = ackfloor(*command, "--config", str(file), cwd=tmp_path)
    assert from_file.returncode == Exit.KAFKA_UNREACHABLE, from_file.stderr
    assert "127.0.0.1:2" in from_file.stderr
    given = ["--config", str(file), "--bootstrap-servers", NOBODY]
    from_option = ackfloor(*command, *given, cwd=tmp_path)
    assert from_option.returncode == Exit.KAFKA_UNREACHABLE, from_option.stderr
    assert f"kafka.bootstrap_servers='{NOBODY}'" in from_option.stderr
    assert "127.0.0.1:2" not in from_option.stderr


def test_a_preview_reads_the_file_that_is_given(tmp_path: Path) -> None:
    """It shows the schedule that a run with this file would have."""
    (tmp_path / "shop.py").write_text(APP, "utf-8")
    file = tmp_path / "elsewhere.toml"
    file.write_text('[handlers.bill]\nconsume_timeout = "77s"\n', "utf-8")
    shown = ackfloor("policy", "preview", "shop:app", "--config", str(file), cwd=tmp_path)
    assert shown.returncode == Exit.OK, shown.stderr
    assert "consume timeout 1m17s" in shown.stdout
