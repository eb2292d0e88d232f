"""`ackfloor breaker`: shows and forces the circuit breakers of a run.

The run passes an order to all its workers, and to those that start later, until the run ends.
Another run of the same group has another address and needs an order of its own.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

import typer

from ackfloor.cli.breaker.breaker_show import show
from ackfloor.cli.shared.command_options import Commands, Made
from ackfloor.cli.shared.noting import Noting, end_by_workers
from ackfloor.cli.shared.parameters import Output, OutputOption, RunConfigOption, SettingsSource
from ackfloor.cli.shared.run_address import (
    ListenOption,
    TokenFileOption,
    credentials,
    exit_unless_all_applied,
    order_terms,
    trust_of,
)
from ackfloor.core.values.durations import format_duration
from ackfloor.operations.run_client import post

breaker_app = Commands(
    name="breaker", help="The circuit breakers of a run's handlers.", no_args_is_help=True
)

_Handler = Annotated[
    str, typer.Argument(metavar="HANDLER", help="The handler, as `handlers ls` prints it.")
]
_For = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="For how long, such as 30m; then it is automatic again.",
        show_default="as long as the run lasts",
    ),
]
_Reason = Annotated[str | None, typer.Option(help="Why; `show` and /readyz show it.")]


class _Run(NamedTuple):
    """The run that gets an order, and how its answer is shown."""

    address: str
    token: str
    source: SettingsSource | None
    output: Output


def _terms(for_: _For = None, reason: _Reason = None) -> dict[str, Any]:
    return order_terms(for_, reason)


def _run(
    listen: ListenOption = None,
    token_file: TokenFileOption = None,
    config: RunConfigOption = None,
    output: OutputOption = Output.table,
) -> _Run:
    return _Run(*credentials(listen, token_file, config), config, output)


_TermsOption = Annotated[dict[str, Any], Made(_terms)]
_RunOption = Annotated[_Run, Made(_run)]

#: What an operator does to a breaker, as in `live.breaker_orders`, and what it is then.
_DONE = {"open": "kept open", "close": "kept closed", "auto": "returned to automatic"}

breaker_app.command()(show)


@breaker_app.command("open")
def open_(handler: _Handler, terms: _TermsOption, run: _RunOption) -> None:
    """Keep a handler's breaker open in all workers of the run: only single records are tried.

    Failed records go to the retry topics at most at its park rate, and successes don't close it.
    Exits with 5 if a worker has not answered or has refused.
    """
    _force(run, "open", handler, terms)


@breaker_app.command()
def close(handler: _Handler, terms: _TermsOption, run: _RunOption) -> None:
    """Keep a handler's breaker closed in all workers of the run: failures follow the retry policy.

    However many fail, it does not open: withheld records go to the retry topics and, at the end of
    their policy, to the dead-letter topic. Exits with 5 if a worker has not answered or has
    refused.
    """
    _force(run, "close", handler, terms)


@breaker_app.command()
def auto(handler: _Handler, run: _RunOption) -> None:
    """Return a handler's breaker to automatic, beginning with the state it has.

    Exits with 5 if a worker has not answered or has refused.
    """
    _force(run, "auto", handler, {})


def _force(run: _Run, action: str, handler: str, terms: dict[str, Any]) -> None:
    from ackfloor.live.breaker_requests import PATH

    given = {"for_s": terms.get("for_s"), "runs": [run.address]}
    noting = Noting(run.source, f"breaker {action}", terms.get("reason"), given)
    with noting.of([handler]) as ending:
        body = {"action": action, "handler": handler, **terms}
        trust = trust_of(run.source, run.address)
        answer = post(run.address, run.token, PATH, body, trust)
        workers = answer["workers"]
        end_by_workers(ending, workers)
    if run.output is Output.json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        for_s = answer["for_s"]
        how_long = "" if for_s is None else f" for {format_duration(for_s)}"
        applied = ", ".join(map(str, workers["applied"])) or "none"
        typer.echo(f"{handler}: {_DONE[action]}{how_long} by worker {applied}")
    exit_unless_all_applied(workers)
