"""`ackfloor lanes retry|delay|park|dead-letter|discard`: move failed heads of lanes and keys.

Each worker acts on its own blocked lanes and quarantined keys, on an order that its run passes on,
so nothing is lost by it: a head that is being delivered or written is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from ackfloor.cli.lanes.lane_list import ls
from ackfloor.cli.shared.command_options import Commands, Made
from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    DryRunOption,
    Output,
    OutputOption,
    RunConfigOption,
    SettingsSource,
    YesOption,
)
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption
from ackfloor.cli.shared.run_tokens import runs_with_tokens
from ackfloor.core.messages.lane_order import Action
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.lane_requests import is_base64, is_place
from ackfloor.operations.lane_moves import DONE, LEFT, LaneMove, LaneOutcome
from ackfloor.operations.runs import Runs
from ackfloor.runtime.supervision.exit_codes import Exit

lanes_app = Commands(
    name="lanes",
    help="Keys and partitions that wait for a record that failed.",
    no_args_is_help=True,
)
lanes_app.command()(ls)

_Handler = Annotated[
    str, typer.Argument(metavar="HANDLER", help="The handler, as `handlers ls` prints it.")
]
_Reason = Annotated[str, typer.Option(help="Why, for the workers' log.")]


@dataclass(frozen=True, slots=True)
class Which:
    """Which lanes of the handler are meant.

    Attributes:
        asked: the part of the request that says so.
    """

    asked: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        places: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[TOPIC/PARTITION/OFFSET]...",
                help="Lanes by their failed records, as `lanes ls` prints them.",
            ),
        ] = None,
        key: Annotated[
            list[str] | None, typer.Option(help="Lanes by their key; repeatable.")
        ] = None,
        key_base64: Annotated[
            list[str] | None, typer.Option(help="The same for keys that are no text; repeatable.")
        ] = None,
        all_: Annotated[
            bool,
            typer.Option("--all", help="All blocked lanes and quarantined keys of the handler."),
        ] = False,
    ) -> Which:
        """From the options; raises SettingError where they name nothing."""
        named = {"places": places, "keys": key, "keys_base64": key_base64}
        asked = {name: values for name, values in named.items() if values}
        for place in places or ():
            if not is_place(place):
                fix = "write topic/partition/offset, such as orders/0/17"
                raise SettingError("TOPIC/PARTITION/OFFSET", place, "names no record", fix)
        for text in key_base64 or ():
            if not is_base64(text):
                raise SettingError("--key-base64", text, "not base64", 'write it such as "a2V5"')
        if bool(asked) is all_:
            why = "lanes are named as well" if all_ else "no lane is named"
            raise SettingError("--all", all_, why, "write records or --key, or else --all")
        return cls(asked or {"all": True})


_WhichOption = Annotated[Which, Made(Which.of)]


@dataclass(frozen=True, slots=True)
class How:
    """How an order is carried out: by which runs, asked for or not, why, and how it is shown.

    Attributes:
        source: where the settings are that name the brokers, for the note of it.
        reason: why, in the operator's words.
    """

    runs: Runs
    dry_run: bool
    yes: bool
    output: Output
    source: SettingsSource | None = None
    reason: str | None = None

    @classmethod
    def of(
        cls,
        dry_run: DryRunOption = False,
        yes: YesOption = False,
        listen: ListensOption = None,
        token_file: TokenFileOption = None,
        config: RunConfigOption = None,
        output: OutputOption = Output.table,
        reason: ReasonOption = None,
    ) -> How:
        """From the options; raises ControlFailed as `runs_with_tokens` does."""
        runs = runs_with_tokens(listen, token_file, config)
        return cls(runs, dry_run, yes, output, config, reason)


_HowOption = Annotated[How, Made(How.of)]


@lanes_app.command()
def retry(handler: _Handler, which: _WhichOption, how: _HowOption) -> None:
    """Try the failed records now, whatever is left of their backoff.

    Each try is an attempt, and counts for the retry policy like any other. A quarantined key that
    is held, because its record is dead-lettered already, is freed: what waits behind it is handled;
    with --all that is every such key. What is due of a paused handler starts when it is resumed.
    Exits with 5 where not all that was named was reached.
    """
    move_heads(LaneMove(Action.RETRY, handler, which.asked), how)


@lanes_app.command()
def delay(
    handler: _Handler,
    by: Annotated[str, typer.Argument(metavar="DURATION", help="From now, such as 10m.")],
    which: _WhichOption,
    how: _HowOption,
) -> None:
    """Try the failed records at another time: sooner or later than their backoff says.

    For this wait alone; `config set` changes the retry policy. Exits with 5 where not all that was
    named was reached.
    """
    delay_s = parse_duration(by, field="DURATION")
    move_heads(LaneMove(Action.DELAY, handler, which.asked, {"delay_s": delay_s}), how)


@lanes_app.command()
def park(handler: _Handler, which: _WhichOption, how: _HowOption) -> None:
    """Park the failed records in a retry topic, so that their lanes go on without them.

    For handlers with retry topics (on_failure="park") whose circuit breaker withholds records.
    Those of quarantined keys are parked already. Exits with 5 where not all that was named was
    reached.
    """
    move_heads(LaneMove(Action.PARK, handler, which.asked), how)


@lanes_app.command("dead-letter")
def dead_letter(
    handler: _Handler,
    which: _WhichOption,
    how: _HowOption,
    followers: Annotated[
        bool | None,
        typer.Option(
            help="Of quarantined keys: whether what waits behind goes to the dead-letter topic as "
            "well, or is handled.",
            show_default="the handler's after_dead_letter",
        ),
    ] = None,
) -> None:
    """Move the failed records to the dead-letter topic; their lanes go on once it is confirmed.

    Exits with 5 where not all that was named was reached.
    """
    more = {"followers": followers}
    move_heads(LaneMove(Action.DEAD_LETTER, handler, which.asked, more), how)


@lanes_app.command()
def discard(handler: _Handler, reason: _Reason, which: _WhichOption, how: _HowOption) -> None:
    """Drop the failed records: they are settled, and written nowhere.

    The reason is logged with each. A record that holds its quarantined key stays in the dead-letter
    topic, and what waits behind it is handled. Exits with 5 where not all that was named was
    reached.
    """
    if not reason.strip() or len(reason) > LONGEST_REASON:
        fix = f"write 1 to {LONGEST_REASON} characters"
        raise SettingError("--reason", f"{reason[:20]}...", "no reason that can be logged", fix)
    move_heads(LaneMove(Action.DISCARD, handler, which.asked, {"reason": reason}), how)


def move_heads(move: LaneMove, how: How) -> None:
    """Have all runs act on blocked lanes, note it, and say what they did.

    Raises:
        ControlFailed: the only run does not answer, or refuses.
        typer.Exit: it was not confirmed, or not all that was named was reached.
    """
    followers = ", with what waits behind" if move.more.get("followers") else ""
    what = f"{DONE[move.action]}{followers}"
    would = None
    if not (how.dry_run or how.yes):
        would = move.judge(how.runs)
        if would.done:
            text = f"{_heads(would.done)} of {move.handler} would be {what}"
            if would.freed:
                text += f", {would.freed:,} of them freed, as they are dead-lettered already"
            confirm(f"{text[0].upper()}{text[1:]}. Go on?", text)
    if how.dry_run:
        outcome = move.judge(how.runs)
    else:
        noting = Noting(how.source, move.name, how.reason, move.arguments(how.runs))
        with noting.of([move.handler]) as ending:
            # What has failed since it was confirmed, nobody has seen.
            outcome = move.as_shown(would).act(how.runs, ending)
    if how.output is Output.json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    _report(outcome, what, quiet=how.output is Output.json)
    if not outcome.whole:
        raise typer.Exit(Exit.PARTIAL if outcome.done else Exit.FAILURE)


def _heads(count: int) -> str:
    return f"the heads of {count:,} {'lane' if count == 1 else 'lanes'}"


def _report(outcome: LaneOutcome, what: str, *, quiet: bool) -> None:
    """Say what was done on standard output, unless it was said, and the rest on standard error."""
    if not quiet:
        would = "would be " if outcome.dry_run else ""
        if outcome.done > outcome.freed or not outcome.freed:
            heads = _heads(outcome.done - outcome.freed)
            typer.echo(f"{outcome.handler}: {would}{what}: {heads}")
        if outcome.freed:
            keys = f"{outcome.freed:,} {'key' if outcome.freed == 1 else 'keys'}"
            typer.echo(f"{outcome.handler}: {would}freed: {keys} that a dead-lettered record held")
    for doing, count in outcome.left.items():
        typer.secho(f"{count:,} {LEFT[doing]}", fg="yellow", err=True)
    if outcome.missing:
        names = ", ".join(outcome.missing)
        typer.secho(
            f"blocked or quarantined in no worker that answered: {names}", fg="yellow", err=True
        )
    for who, why in outcome.refused.items():
        # What `post` says begins with the run's address by itself.
        text = why if who in why else f"{who} refused: {why}"
        typer.secho(text, fg="red", err=True)
    for why in outcome.unknown.values():
        typer.secho(why, fg="red", err=True)
    for who in outcome.silent:
        typer.secho(f"no answer from {who}", fg="red", err=True)
