"""Where a command finds a run: its address and its token, from the options and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ackfloor.cli.shared.parameters import SettingsSource
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.errors import ConfigError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.token import FIELD, read_token, token_path
from ackfloor.operations.run_client import (
    ControlFailed,
    address_of,
    ask_state,
    refuse_without_controls,
)
from ackfloor.operations.run_tls import SYSTEM, Trust, is_loopback
from ackfloor.runtime.supervision.exit_codes import Exit

ListenOption = Annotated[
    str | None,
    typer.Option(
        envvar="ACKFLOOR_RUN_LISTEN",
        help="The run's address, the same as that of `ackfloor run --listen`, where it has TLS "
        "https://HOST:PORT; of a worker inside a web service HOST:PORT/PATH or a URL, with the "
        "path of its pages.",
        show_default="127.0.0.1:9600",
    ),
]
ListensOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        envvar="ACKFLOOR_RUN_LISTEN",
        help="The address of a run of the group, as `ackfloor run --listen` has it, where it has "
        "TLS https://HOST:PORT; of a worker inside a web service HOST:PORT/PATH or a URL, with the "
        "path of its pages; repeatable (in the variable: separated by spaces).",
        show_default="127.0.0.1:9600",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        help="The file with the run's token, whose path the run logs.",
        show_default="the run's own",
    ),
]


class NoToken(ControlFailed):
    """The file of `--token-file` can't be read, or holds no token."""

    exit_code = Exit.USAGE


class OtherGroup(ControlFailed):
    """The run at the address is not one of the group that was named."""


def read_state(
    listen: str | None, source: SettingsSource | None, trust: Trust | None = None
) -> Any:
    """Read `/state` of a run.

    Args:
        listen: its address; None for the one in the settings.
        source: where the settings are; it may name the group that the run must have.
        trust: whom to trust there; None for what the settings say.

    Raises:
        ControlFailed: there is no answer, it is not a run's, or that of another group.
        ConfigError: the settings are refused, or whom to trust can't be read.
    """
    source = source or SettingsSource()
    listen = listen or source.load().app.address
    tree = ask_state(listen, read_trust(source, listen) if trust is None else trust)
    if source.group is not None and tree.get("group", source.group) != source.group:
        from ackfloor.settings.app_sections import section_name

        raise OtherGroup(
            f"the run at {listen} is of group {tree['group']!r}, not {source.group!r}: name the "
            f"address of its run with --listen, or as listen in [{section_name(source.group)}.app]"
        )
    return tree


def state_if_any(listen: str | None, source: SettingsSource | None) -> Mapping[str, Any]:
    """The run's state, empty if no run of the group answers; with `--listen` a run must answer."""
    try:
        state: Mapping[str, Any] = read_state(listen, source)
    except OtherGroup:
        return {}
    except ControlFailed:
        if listen is not None:
            raise
        return {}
    return state


def runs_of(listen: list[str] | None, source: SettingsSource | None) -> list[str]:
    """The addresses of the runs to ask: as given, each once, or the settings' own."""
    given = list(dict.fromkeys(listen or ()))
    return given or [(source or SettingsSource()).load().app.address]


def trust_of(source: SettingsSource | None, *runs: str) -> Trust:
    """Whom to trust at these addresses, by the settings, which are read where that matters.

    Raises:
        NoAddress: one of them is none.
        ConfigError: the settings are refused.
    """
    addresses = [address_of(run) for run in runs]
    if all(each.secure is False and is_loopback(each.host) for each in addresses):
        return SYSTEM
    app = (source or SettingsSource()).load().app
    return Trust(Path(app.tls_ca).expanduser() if app.tls_ca else None, app.plain_token)


def read_trust(source: SettingsSource | None, *runs: str) -> Trust:
    """Likewise where no token is sent: the settings are read for addresses with TLS alone.

    Raises:
        NoAddress: one of them is none.
        ConfigError: the settings are refused.
    """
    return trust_of(source, *(run for run in runs if address_of(run).secure))


def credentials(
    listen: str | None, token_file: Path | None, source: SettingsSource | None
) -> tuple[str, str]:
    """The address and the token of a run: as given, else from the settings.

    Raises:
        ControlFailed: the address is invalid, the token can't be read, or a group was named and
            no run of it answers.
    """
    source = source or SettingsSource()
    if listen is not None:
        address_of(listen)
    named = FIELD if token_file is None else "--token-file"
    if listen is None or token_file is None:
        app = source.load().app
        listen = listen or app.address
        token_file = token_file or token_path(listen, app.control_token_file)
    if source.group is not None:
        # The address may be a default that a run of another app has.
        read_state(listen, source)
    try:
        return listen, read_token(token_file, named)
    except ConfigError as exc:
        if named == FIELD:
            refuse_without_controls(listen, trust_of(source, listen))
        failed = ControlFailed if named == FIELD else NoToken
        raise failed(str(exc)) from None


def order_terms(for_: str | None, reason: str | None) -> dict[str, Any]:
    """The part of an order about a handler that comes from `--for` and `--reason`.

    Raises:
        SettingError: one of them has an invalid value.
    """
    terms: dict[str, Any] = {"reason": checked_reason("--reason", reason)}
    if for_ is not None:
        terms["for_s"] = parse_duration(for_, field="--for")
        if not terms["for_s"]:
            raise SettingError("--for", for_, "no time at all", 'write a duration such as "30m"')
    return terms


def checked_reason(option: str, reason: str | None) -> str:
    """An operator's reason, empty where there is none; raises SettingError for one too long."""
    if len(reason or "") > LONGEST_REASON:
        shown, most = f"{(reason or '')[:20]}...", f"at most {LONGEST_REASON} characters"
        raise SettingError(option, shown, "too long to be shown", f"write {most}")
    return reason or ""


def exit_unless_all_applied(workers: Mapping[str, Any]) -> None:
    """Print which workers refused a change or have not answered yet.

    Raises:
        typer.Exit: there are such workers.
    """
    for worker, why in workers["refused"].items():
        typer.secho(f"worker {worker} did not take it: {why}", fg="red", err=True)
    if workers["silent"]:
        silent = ", ".join(map(str, workers["silent"]))
        typer.secho(f"no answer yet from worker {silent}; see /readyz", fg="yellow", err=True)
    if workers["refused"] or workers["silent"]:
        raise typer.Exit(Exit.PARTIAL)
