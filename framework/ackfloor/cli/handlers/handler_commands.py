"""`ackfloor handlers pause|resume`: stop a handler in all workers of the runs given, and let it go.

Each run passes an order to all its workers, and to those that start later, until the run ends. So
a run that is not given with `--listen` goes on as before.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ackfloor.cli.handlers.handler_list import ls
from ackfloor.cli.shared.command_options import Commands, Made
from ackfloor.cli.shared.noting import Noting
from ackfloor.cli.shared.parameters import Output, OutputOption, RunConfigOption, SettingsSource
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption, order_terms
from ackfloor.cli.shared.run_tokens import runs_with_tokens
from ackfloor.core.values.durations import format_duration
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from ackfloor.operations.handler_pauses import HandlerPause, PauseOutcome
    from ackfloor.operations.runs import Runs

handlers_app = Commands(
    name="handlers",
    # `ACKFLOOR_HANDLERS__...` are settings.
    variables="handlers_{command}",
    help="The handlers of runs: list, pause and resume them.",
    no_args_is_help=True,
)
handlers_app.command()(ls)

_Handler = Annotated[
    str, typer.Argument(metavar="HANDLER", help="The handler, as `handlers ls` prints it.")
]
_For = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="For how long, such as 30m; then it goes on by itself.",
        show_default="until it is resumed, or the run ends",
    ),
]
_Reason = Annotated[str | None, typer.Option(help="Why; `handlers ls` and /readyz show it.")]


class _How(NamedTuple):
    """The runs that get an order, and how what they did is shown."""

    runs: Runs
    source: SettingsSource | None
    output: Output


def _how(
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    config: RunConfigOption = None,
    output: OutputOption = Output.table,
) -> _How:
    return _How(runs_with_tokens(listen, token_file, config), config, output)


def _terms(for_: _For = None, reason: _Reason = None) -> dict[str, Any]:
    return order_terms(for_, reason)


_HowOption = Annotated[_How, Made(_how)]
_TermsOption = Annotated[dict[str, Any], Made(_terms)]

#: What an operator does to a handler, as in `live.pause_orders`, and what it is then.
_DONE = {"pause": "paused", "resume": "resumed"}


@handlers_app.command()
def pause(handler: _Handler, terms: _TermsOption, how: _HowOption) -> None:
    """Start nothing more of a handler, in all workers of the runs, also in those that start later.

    What runs may end; everything else stays open, spends no attempt, and goes on when it is
    resumed: also redeliveries and trials of the circuit breaker. /readyz has a note, and the run
    stays ready. Exits with 5 if a worker has not answered or has refused, and with 1 if all have.
    """
    from ackfloor.operations import HandlerPause, PauseAction

    _order(HandlerPause(PauseAction.PAUSE, handler, **terms), how)


@handlers_app.command()
def resume(handler: _Handler, how: _HowOption) -> None:
    """Let a paused handler go on, in all workers of the runs; one that goes on already does so.

    A pause that the handler asked for itself goes on. Exits with 5 if a worker has not answered or
    has refused, and with 1 if all have.
    """
    from ackfloor.operations import HandlerPause, PauseAction

    _order(HandlerPause(PauseAction.RESUME, handler), how)


def _order(order: HandlerPause, how: _How) -> None:
    """Have all runs pause or resume a handler, note it, and say what they did.

    Raises:
        ControlFailed: the only run does not answer, or refuses.
        typer.Exit: not every worker did it.
    """
    noting = Noting(how.source, order.name, order.reason, order.arguments(how.runs))
    with noting.of([order.handler]) as ending:
        outcome = order.act(how.runs, ending)
    if how.output is Output.json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    else:
        _print(outcome)
    for who, why in outcome.refused.items():
        typer.secho(f"{who} did not take it: {why}", fg="red", err=True)
    for why in outcome.unknown.values():
        typer.secho(why, fg="red", err=True)
    for who in outcome.silent:
        typer.secho(f"no answer yet from {who}; see `ackfloor handlers ls`", fg="yellow", err=True)
    if not outcome.whole:
        raise typer.Exit(Exit.PARTIAL if any(outcome.applied.values()) else Exit.FAILURE)


def _print(outcome: PauseOutcome) -> None:
    """A line for each run that took the order."""
    for_s = outcome.for_s
    how_long = "" if for_s is None else f" for {format_duration(for_s)}"
    done = f"{outcome.handler}: {_DONE[outcome.action]}{how_long}"
    for run, workers in outcome.applied.items():
        by = f"worker {', '.join(map(str, workers))}" if workers else "no worker yet"
        typer.echo(f"{run}: {done} by {by}")
