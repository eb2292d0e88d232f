"""What all commands have in common: how a command line is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click.testing
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from ackfloor.cli.main import cli
from ackfloor.cli.reference.cli_reference import commands, options
from ackfloor.cli.shared.command_options import Commands, Made
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.errors import ConfigError
from tests.framework.cli.command import environment

COMMANDS = dict(commands())
#: Made once: typer's runner makes all commands anew for each call.
COMMAND: Any = get_command(cli)


def invoked(*arguments: str) -> click.testing.Result:
    """What a command line comes to."""
    return click.testing.CliRunner(env={"COLUMNS": "200"}).invoke(COMMAND, arguments)


def _given_once() -> list[Any]:
    return [
        pytest.param(path, option.opts[0], id=f"{path} {option.opts[0]}")
        for path, command in COMMANDS.items()
        for option in options(command)
        if not option.multiple and not option.is_flag
    ]


@pytest.mark.parametrize(("path", "option"), _given_once())
def test_an_option_of_one_value_is_not_given_twice(path: str, option: str) -> None:
    """The first would be lost, and of a filter that is what widens a discard."""
    ended = invoked(*path.split()[1:], option, "a", option, "b")
    assert ended.exit_code == 2, ended.output
    assert option in ended.stderr
    assert "is given more than once" in ended.stderr


@pytest.mark.parametrize(
    ("path", "option"),
    [each for each in _given_once() if each.values[1] != "--key"],
)
def test_an_option_is_not_empty(path: str, option: str) -> None:
    """A shell makes that of a variable that is not set: `--resume ""` would mean all there are."""
    ended = invoked(*path.split()[1:], option, "")
    assert ended.exit_code == 2, ended.output
    assert option in ended.stderr
    assert "is empty: give it a value, or leave it out" in ended.stderr


def _texts() -> list[Any]:
    return [
        pytest.param(path, parameter, id=f"{path} {parameter.name}")
        for path, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "is_flag", False)
    ]


@pytest.mark.parametrize(("path", "parameter"), _texts())
def test_text_that_is_not_utf_8_is_refused(path: str, parameter: Any) -> None:
    """The Kafka client crashes on it, and printing it fails."""
    is_option = parameter.param_type_name == "option"
    before = [
        "t"
        for each in COMMANDS[path].params[: COMMANDS[path].params.index(parameter)]
        if each.param_type_name == "argument"
    ]
    given = [parameter.opts[0], "caf\udce9"] if is_option else [*before, "caf\udce9"]
    ended = invoked(*path.split()[1:], *given)
    assert ended.exit_code == 2, ended.output
    assert (parameter.opts[0] if is_option else parameter.metavar) in ended.stderr
    assert "'caf\\xe9' is not UTF-8" in ended.stderr


def _needed() -> list[Any]:
    """The first argument or option of each command that has one which must be given."""
    return [
        pytest.param(path, command.params[0], id=path)
        for path, command in COMMANDS.items()
        if command.params and command.params[0].required
    ]


@pytest.mark.parametrize(("path", "parameter"), _needed())
def test_what_is_missing_is_told_with_what_it_is(path: str, parameter: Any) -> None:
    """`Missing argument 'HANDLER'` alone leads nowhere: its help names where to find one."""
    ended = invoked(*path.split()[1:])
    assert ended.exit_code == 2, ended.output
    assert parameter.help
    kind = parameter.param_type_name
    name = parameter.metavar if kind == "argument" else parameter.opts[0]
    assert f"Missing {kind} '{name}'" in ended.stderr
    assert f". {parameter.help}\n" in ended.stderr


def test_a_variable_that_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the same places as the option."""
    monkeypatch.setenv("ACKFLOOR_GROUP", "caf\udce9")
    ended = invoked("lag")
    assert ended.exit_code == 2, ended.output
    assert "'caf\\xe9' is not UTF-8" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["lag", "--group"], ["acks", "--group"], ["dlq", "ls", "t", "--key"]]
)
def test_bytes_that_are_not_utf_8_crash_no_command(arguments: list[str], tmp_path: Path) -> None:
    """As a shell hands them over: in a process of its own, which a crash would end."""
    ended = subprocess.run(
        [sys.executable, "-m", "ackfloor.cli.main", *arguments, b"caf\xe9"],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert b"'caf\\xe9' is not UTF-8" in ended.stderr
    assert arguments[-1].encode() in ended.stderr


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("ACKFLOOR_DLQ_EROR", "did you mean ACKFLOOR_DLQ_ERROR?"),
        ("ackfloor_lag_wach", "did you mean ACKFLOOR_LAG_WATCH?"),
    ],
)
def test_a_misspelt_variable_of_an_option_is_refused(
    variable: str, near: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command, before it does anything: a filter that is off means more. Help is given."""
    monkeypatch.setenv(variable, "shop.Boom")
    ended = CliRunner().invoke(cli, ["dlq", "discard", "t", "--yes"])
    assert isinstance(ended.exception, ConfigError)
    assert str(ended.exception).startswith(f"{variable}=")
    assert near in str(ended.exception)
    assert "shop.Boom" not in str(ended.exception)
    assert CliRunner().invoke(cli, ["dlq", "discard", "--help"]).exit_code == 0


def test_headers_are_given_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them must be there, as the filter says."""
    meant: list[DeadLetterFilter] = []

    def look(
        _self: object, _places: object, wanted: DeadLetterFilter, *_: object, **_more: object
    ) -> list[object]:
        meant.append(wanted)
        return []

    told: list[str] = []
    members = {
        "dead_letters": look,
        "rules": None,
        "tell_source": lambda _, name: told.append(name),
    }
    reading = type("Reading", (), members)
    opened = "ackfloor.dead_letters.commands.dlq.DeadLetterSelection.open"
    monkeypatch.setattr(opened, lambda *_: reading())
    given = ["--header", "tenant=acme", "--header", "source"]
    assert CliRunner().invoke(cli, ["dlq", "ls", "t", *given]).exit_code == 0
    assert meant == [DeadLetterFilter(headers=(("tenant", "acme"), ("source", None)))]
    assert told == ["t"]


def test_what_kubernetes_tells_of_a_service_is_no_misspelt_option() -> None:
    """Each pod beside a service that is named `ackfloor-run` has these variables."""
    told = {"ACKFLOOR_RUN_SERVICE_HOST": "10.0.0.1", "ACKFLOOR_RUN_PORT": "tcp://10.0.0.1:9600"}
    ended = CliRunner(env=told).invoke(cli, ["config", "show"])
    assert ended.exit_code == 0, ended.output


class Inner(NamedTuple):
    """A part of a part of a command."""

    group: str | None

    @classmethod
    def of(cls, group: Annotated[str | None, typer.Option(help="A part's.")] = None) -> Inner:
        return cls(group)


class Outer(NamedTuple):
    """A part of a command."""

    inner: Inner

    @classmethod
    def of(cls, inner: Annotated[Inner, Made(Inner.of)]) -> Outer:
        return cls(inner)


def test_an_option_that_a_part_of_the_command_needs_as_well_is_one() -> None:
    """Given once on the command line; the command's own help describes it."""
    seen: list[object] = []
    commands = Commands(name="x")

    @commands.command()
    def look(
        outer: Annotated[Outer, Made(Outer.of)],
        group: Annotated[str | None, typer.Option(help="The command's own.")] = None,
    ) -> None:
        seen.append((outer.inner.group, group))

    assert CliRunner().invoke(commands, ["--group", "billing"]).exit_code == 0
    assert seen == [("billing", "billing")]
    told = CliRunner().invoke(commands, ["--help"]).output
    assert ("The command's own." in told, "A part's." in told) == (True, False)
