"""`ackfloor config show`: every setting, its value and the place it came from; also of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.config.config_set import set_
from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import (
    FactoryOption,
    Output,
    OutputOption,
    RunConfigOption,
    SettingsSource,
)
from ackfloor.cli.shared.run_address import ListenOption, TokenFileOption, credentials, trust_of

if TYPE_CHECKING:
    from ackfloor.settings import SettingRow

config_app = Commands(
    name="config",
    variables="config_{command}",
    help="Settings: their values and sources.",
    no_args_is_help=True,
)
config_app.command(name="set")(set_)


@config_app.callback()
def config() -> None:
    """Settings: their values and sources."""


@config_app.command()
def show(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:APP]",
            envvar="ACKFLOOR_CONFIG_SHOW_APP",
            help="Also show the settings in this app's code, and those of its handlers.",
        ),
    ] = None,
    factory: FactoryOption = False,
    running: Annotated[
        bool,
        typer.Option("--running", help="Ask the run at `--listen` what it goes by now."),
    ] = False,
    listen: ListenOption = None,
    token_file: TokenFileOption = None,
    config: RunConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Print every setting with its value and source; secrets are shown as ***.

    The strongest source wins: command-line flag, environment, ackfloor.toml, code, built-in. Of
    the file and the environment, the section of the app's group counts, and more than the top
    level. An app has its group; without one, `--group` names it. With `--running` the run says
    what it goes by, with what `config set` has changed.
    """
    from ackfloor.settings import Settings, rows, sections_of
    from ackfloor.settings.app_sections import file_place
    from ackfloor.settings.layers import find_file

    source = config or SettingsSource()
    if running:
        _print(_of_run(app, listen, token_file, source), output)
        return
    _refuse_options_of_a_run(context)
    if app is None:
        settings = source.load()
        shown = rows(settings)
    else:
        from ackfloor.loading import load_app

        loaded = load_app(app, factory=factory)
        code = sections_of(loaded.group, loaded.options)
        settings = Settings.load(code, config=source.config)
        source.refuse_unless_of(settings)
        shown = rows(settings, loaded.handlers)
    _print(shown, output)
    found = find_file(source.config, os.environ)
    if found is not None and (remark := file_place(found).remark(settings.app.group)):
        typer.secho(remark, fg="yellow", err=True)


def _refuse_options_of_a_run(context: typer.Context) -> None:
    """Where no run is asked; a variable may be meant for the other commands."""
    for name in ("listen", "token_file", "tls_ca"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("it is for --running: give both", param_hint=option)


def _of_run(
    app: str | None, listen: str | None, token_file: Path | None, source: SettingsSource
) -> list[SettingRow]:
    """Those that a run goes by; raises ControlFailed."""
    from ackfloor.operations import ask_settings
    from ackfloor.settings import SettingRow

    if app is not None:
        why = f"the run has its app: leave {app} out"
        raise typer.BadParameter(why, param_hint="--running")
    run, token = credentials(listen, token_file, source)
    found = ask_settings(run, token, trust_of(source, run)).all()
    return [SettingRow(each.name, each.value, each.source) for each in found]


def _print(shown: Sequence[SettingRow], output: Output) -> None:
    if output is Output.json:
        typer.echo(json.dumps([row._asdict() for row in shown], indent=2))
    else:
        _print_table(shown)


def _print_table(shown: Sequence[SettingRow]) -> None:
    from ackfloor.settings import SettingRow

    # Not a rich table: people copy names and sources, so none may be cut or folded.
    lines = [SettingRow("name", "value", "source"), *shown]
    width = max(len(row.name) for row in lines)
    value_width = min(40, max(len(row.value) for row in lines))
    for row in lines:
        typer.echo(f"{row.name:<{width}}  {row.value:<{value_width}}  {row.source}")
