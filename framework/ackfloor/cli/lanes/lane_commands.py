"""`ackfloor lanes retry|delay|park|dead-letter|discard`: move failed heads of lanes and keys.

Each worker acts on its own blocked lanes and quarantined keys, on an order that its run passes on,
so nothing is lost by it: a head that is being delivered or written is left as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from ackfloor.cli.lanes.lane_list import ls
from ackfloor.cli.shared.command_options import Commands, Made
from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    ConfigOption,
    DryRunOption,
    Output,
    OutputOption,
    SettingsSource,
    YesOption,
)
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption
from ackfloor.cli.shared.runs import Runs
from ackfloor.core.messages.lane_order import EXHAUSTED, PARKED, TOO_MANY, Action
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.live.kept_orders import LONGEST_REASON
from ackfloor.live.lane_requests import PATH, is_base64, is_place
from ackfloor.operations.noted import counts_of
from ackfloor.runtime.supervision.exit_codes import Exit

lanes_app = Commands(
    name="lanes",
    help="Keys and partitions that wait for a record that failed.",
    no_args_is_help=True,
)
lanes_app.command()(ls)

_Handler = Annotated[str, typer.Argument(metavar="HANDLER", help="The handler's name.")]
_Reason = Annotated[str, typer.Option(help="Why, for the workers' log.")]

_DONE = {
    Action.RETRY: "tried now",
    Action.DELAY: "given another time",
    Action.PARK: "parked in a retry topic",
    Action.DEAD_LETTER: "on the way to the dead-letter topic",
    Action.DISCARD: "discarded",
}
_LEFT = {
    TOO_MANY: "is more than one order writes: give the order again",
    PARKED: "is quarantined, so it is in a retry topic already: left as it is",
    EXHAUSTED: "has no attempt left, so it can't be parked: dead-letter it, or leave it to a trial",
    "running": "is being delivered: left as it is",
    "queued": "is about to be delivered: left as it is",
    "withheld": "waits for a trial of the circuit breaker, which decides when: left as it is",
    "dead_lettering": "is on its way to the dead-letter topic already",
    "moving": "is being written, or not read back yet: left as it is, give the order again",
    "held": "is dead-lettered already and holds its key: left as it is; `lanes retry` frees the "
    "key, `lanes dead-letter --followers` gives up what waits behind it",
}


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
        config: ConfigOption = None,
        output: OutputOption = Output.table,
        reason: ReasonOption = None,
    ) -> How:
        """From the options; raises ControlFailed as `Runs.of` does."""
        runs = Runs.of(listen, token_file, config)
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
    move_heads(Action.RETRY, handler, which, how)


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
    move_heads(Action.DELAY, handler, which, how, delay_s=parse_duration(by, field="DURATION"))


@lanes_app.command()
def park(handler: _Handler, which: _WhichOption, how: _HowOption) -> None:
    """Park the failed records in a retry topic, so that their lanes go on without them.

    For handlers with retry topics (on_failure="park") whose circuit breaker withholds records.
    Those of quarantined keys are parked already. Exits with 5 where not all that was named was
    reached.
    """
    move_heads(Action.PARK, handler, which, how)


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
    move_heads(Action.DEAD_LETTER, handler, which, how, followers=followers)


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
    move_heads(Action.DISCARD, handler, which, how, reason=reason)


@dataclass(slots=True)
class Outcome:
    """What all runs did, as JSON shows it.

    Attributes:
        done: how many lanes it was done to, or would be.
        freed: how many of them were quarantined keys that were held, and are free now.
        left: what other heads were doing, which were left as they are -> how many.
        missing: what was named and waits in no worker that answered.
        refused: run and worker -> why it did nothing.
        silent: run and worker, of those that did not answer.
    """

    action: str
    handler: str
    dry_run: bool
    done: int = 0
    freed: int = 0
    left: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)

    def add(self, run: str, answer: Mapping[str, Any]) -> None:
        """One run's answer."""
        self.done += answer["done"]
        # An older run does not tell, and frees nothing.
        self.freed += answer.get("freed", 0)
        # No Counter is stored: `asdict` would count its items.
        self.left = dict(Counter(self.left) + Counter(answer["left"]))
        self.refused |= {f"{run} worker {n}": why for n, why in answer["refused"].items()}
        self.silent += [f"{run} worker {n}" for n in answer["workers"]["silent"]]

    @property
    def counts(self) -> dict[str, int]:
        """How many lanes it was done to, and of the others how many for which reason."""
        others = {"missing": len(self.missing), "refused": len(self.refused)}
        named = {**others, "silent": len(self.silent), "freed": self.freed}
        return counts_of(self.done, **{**self.left, **named})

    @property
    def whole(self) -> bool:
        """Whether all that was named was reached."""
        return not (self.left or self.missing or self.refused or self.silent)


def move_heads(
    action: Action, handler: str, which: Which, how: How, command: str = "lanes", **more: object
) -> None:
    """Have all runs act on blocked lanes, note it, and say what they did.

    Args:
        command: the name under which it is noted, before the action's own.

    Raises:
        ControlFailed: the only run does not answer, or refuses.
        typer.Exit: it was not confirmed, or not all that was named was reached.
    """
    asked = {"action": action, "handler": handler, **which.asked, **more}
    name = command if " " in command else f"{command} {action.replace('_', '-')}"
    given = {**which.asked, **more, "runs": list(how.runs.tokens), "reason": None}
    noting = Noting(how.source, name, how.reason, given)
    what = f"{_DONE[action]}{', with what waits behind' if more.get('followers') else ''}"
    if not (how.dry_run or how.yes):
        would = _ask(how, {**asked, "dry_run": True})
        if would.done:
            text = f"{_heads(would.done)} of {handler} would be {what}"
            if would.freed:
                text += f", {would.freed:,} of them freed, as they are dead-lettered already"
            confirm(f"{text[0].upper()}{text[1:]}. Go on?", text)
    if how.dry_run:
        outcome = _ask(how, {**asked, "dry_run": True})
    else:
        with noting.of([handler]) as ending:
            outcome = _ask(how, {**asked, "dry_run": False})
            ending.whole, ending.counts = outcome.whole, outcome.counts
    if how.output is Output.json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    _report(outcome, what, quiet=how.output is Output.json)
    if not outcome.whole:
        raise typer.Exit(Exit.PARTIAL if outcome.done else Exit.FAILURE)


def _heads(count: int) -> str:
    return f"the heads of {count:,} {'lane' if count == 1 else 'lanes'}"


def _ask(how: How, asked: dict[str, object]) -> Outcome:
    """What all runs answer; raises ControlFailed where the only one does not."""
    outcome = Outcome(str(asked["action"]), str(asked["handler"]), bool(asked["dry_run"]))
    missing: list[set[str]] = []
    order: dict[str, None] = {}
    for run, answer in how.runs.post(PATH, asked, outcome.refused):
        outcome.add(run, answer)
        missing.append(set(answer["missing"]))
        order |= dict.fromkeys(answer["missing"])
    nowhere = set.intersection(*missing) if missing else set()
    outcome.missing = [name for name in order if name in nowhere]
    return outcome


def _report(outcome: Outcome, what: str, *, quiet: bool) -> None:
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
        typer.secho(f"{count:,} {_LEFT[doing]}", fg="yellow", err=True)
    if outcome.missing:
        names = ", ".join(outcome.missing)
        typer.secho(
            f"blocked or quarantined in no worker that answered: {names}", fg="yellow", err=True
        )
    for who, why in outcome.refused.items():
        # What `post` says begins with the run's address by itself.
        text = why if who in why else f"{who} refused: {why}"
        typer.secho(text, fg="red", err=True)
    for who in outcome.silent:
        typer.secho(f"no answer from {who}", fg="red", err=True)
