"""`ackfloor handlers pause|resume`: stop a handler in all workers of the runs given, and let it go.

Each run passes an order to all its workers, and to those that start later, until the run ends. So
a run that is not given with `--listen` goes on as before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from ackfloor.cli.handlers.handler_list import ls
from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.noting import Noting
from ackfloor.cli.shared.parameters import ConfigOption, Output, OutputOption, SettingsSource
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption, order_terms
from ackfloor.cli.shared.runs import Runs
from ackfloor.core.values.durations import format_duration
from ackfloor.live.pause_orders import PATH, PauseAction
from ackfloor.operations.noted import counts_of
from ackfloor.runtime.supervision.exit_codes import Exit

handlers_app = Commands(
    name="handlers",
    # `ACKFLOOR_HANDLERS__...` are settings.
    variables="handlers_{command}",
    help="The handlers of runs: list, pause and resume them.",
    no_args_is_help=True,
)
handlers_app.command()(ls)

_Handler = Annotated[str, typer.Argument(metavar="HANDLER", help="The handler's name.")]
_For = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="For how long, such as 30m; then it goes on by itself.",
        show_default="until it is resumed, or the run ends",
    ),
]
_Reason = Annotated[str | None, typer.Option(help="Why; `handlers ls` and /readyz show it.")]

_DONE = {PauseAction.PAUSE: "paused", PauseAction.RESUME: "resumed"}


@handlers_app.command()
def pause(
    handler: _Handler,
    for_: _For = None,
    reason: _Reason = None,
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Start nothing more of a handler, in all workers of the runs, also in those that start later.

    What runs may end; everything else stays open, spends no attempt, and goes on when it is
    resumed: also redeliveries and trials of the circuit breaker. /readyz has a note, and the run
    stays ready. Exits with 5 if a worker has not answered or has refused, and with 1 if all have.
    """
    terms = order_terms(for_, reason)
    runs = Runs.of(listen, token_file, config)
    _order(PauseAction.PAUSE, handler, terms, runs, output, config)


@handlers_app.command()
def resume(
    handler: _Handler,
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Let a paused handler go on, in all workers of the runs; one that goes on already does so.

    A pause that the handler asked for itself goes on. Exits with 5 if a worker has not answered or
    has refused, and with 1 if all have.
    """
    runs = Runs.of(listen, token_file, config)
    _order(PauseAction.RESUME, handler, {}, runs, output, config)


@dataclass(slots=True)
class PauseOutcome:
    """What all runs did, as JSON shows it.

    Attributes:
        for_s: how long the pause lasts; None until further notice.
        applied: run -> its workers that did it.
        refused: run, and worker -> why it did nothing.
        silent: run and worker, of those that have not answered.
    """

    action: str
    handler: str
    for_s: float | None
    reason: str
    applied: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def add(self, run: str, workers: Mapping[str, Any]) -> None:
        """One run's answer."""
        self.applied[run] = workers["applied"]
        self.refused |= {f"{run} worker {n}": why for n, why in workers["refused"].items()}
        self.silent += [f"{run} worker {n}" for n in workers["silent"]]

    @property
    def whole(self) -> bool:
        """Whether every worker did it."""
        return not (self.refused or self.silent)

    @property
    def counts(self) -> dict[str, int]:
        """How many workers did it, and how many did not."""
        done = sum(map(len, self.applied.values()))
        return counts_of(done, refused=len(self.refused), silent=len(self.silent))


def _order(
    action: PauseAction,
    handler: str,
    terms: Mapping[str, Any],
    runs: Runs,
    output: Output,
    source: SettingsSource | None,
) -> None:
    """Have all runs pause or resume a handler, note it, and say what they did.

    Raises:
        ControlFailed: the only run does not answer, or refuses.
        typer.Exit: not every worker did it.
    """
    outcome = PauseOutcome(action, handler, terms.get("for_s"), terms.get("reason", ""))
    body = {"action": action, "handler": handler, **terms}
    given = {"for_s": outcome.for_s, "runs": list(runs.tokens)}
    with Noting(source, f"handlers {action}", outcome.reason, given).of([handler]) as ending:
        for run, answer in runs.post(PATH, body, outcome.refused):
            outcome.add(run, answer["workers"])
        ending.whole, ending.counts = outcome.whole, outcome.counts
    if output is Output.json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    else:
        _print(outcome)
    for who, why in outcome.refused.items():
        typer.secho(f"{who} did not take it: {why}", fg="red", err=True)
    for who in outcome.silent:
        typer.secho(f"no answer yet from {who}; see `ackfloor handlers ls`", fg="yellow", err=True)
    if not outcome.whole:
        raise typer.Exit(Exit.PARTIAL if any(outcome.applied.values()) else Exit.FAILURE)


def _print(outcome: PauseOutcome) -> None:
    """A line for each run that took the order."""
    for_s = outcome.for_s
    how_long = "" if for_s is None else f" for {format_duration(for_s)}"
    done = f"{outcome.handler}: {_DONE[PauseAction(outcome.action)]}{how_long}"
    for run, workers in outcome.applied.items():
        by = f"worker {', '.join(map(str, workers))}" if workers else "no worker yet"
        typer.echo(f"{run}: {done} by {by}")
