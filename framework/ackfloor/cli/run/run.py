"""`ackfloor run MODULE:APP`: worker processes under a supervisor, one address for all of them.

The command checks everything possible before any worker starts: the import, every setting, every
handler's signature, the topics. A failure there is one line and exit code 3.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Annotated

import typer

from ackfloor.cli.run.reload import run_reloading
from ackfloor.cli.run.run_options import GivenSettings, given_options
from ackfloor.cli.shared.parameters import AppArgument, FactoryOption, FileOption
from ackfloor.core.values.durations import parse_duration
from ackfloor.errors import StartError
from ackfloor.loading import StopRequested
from ackfloor.runtime.supervision.exit_codes import Exit


def run(
    app: AppArgument,
    given: GivenSettings,
    context: typer.Context,
    factory: FactoryOption = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Start again when a Python file below this folder, or the settings file, "
            "changes. For development, not for production.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this handler; repeatable.")
    ] = None,
    connect_timeout: Annotated[
        str | None,
        typer.Option(
            help="Give up with exit code 4 when no broker answers within this time, such as 30s; "
            "without it, wait for ever."
        ),
    ] = None,
    config: FileOption = None,
) -> None:
    """Run an app's handlers until asked to stop.

    SIGTERM or SIGINT drains: no new deliveries, running handlers may finish, floors are
    committed. A second one stops now.
    """
    wait = _wait(connect_timeout)
    if reload:
        raise typer.Exit(run_reloading(app, given_options(context), config))
    with _starting():
        from ackfloor.cli.run.supervised_run import supervised

        code = supervised(app, given, factory, only or [], wait, config)
    raise typer.Exit(code)


def _wait(connect_timeout: str | None) -> timedelta | None:
    """How long to wait for a broker; read before the run listens, so that a wrong value is told
    whoever has the port. Raises SettingError."""
    if connect_timeout is None:
        return None
    return timedelta(seconds=parse_duration(connect_timeout, field="--connect-timeout"))


@contextmanager
def _starting() -> Iterator[None]:
    """Handle signals until the supervisor does: a reload must not end a run that is still
    starting, and a stop ends it with exit code 0, because nothing is open."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise StopRequested

    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except StopRequested:
        raise typer.Exit(Exit.OK) from None
    except SystemExit as exc:
        # From the app's code or a plugin's. Exit code 0 would look like a requested stop.
        raise StartError(f"the run was ended by {exc!r} before it was asked to stop") from exc
