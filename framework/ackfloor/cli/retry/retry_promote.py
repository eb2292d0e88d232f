"""`ackfloor retry promote|bury`: end the wait of records in a retry topic.

The command sends an order to the run's address, and the worker that has the partition carries it
out: only this worker knows which records are in flight. So no record is lost, and none that is
settled is handled again.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any, NamedTuple

import typer

from ackfloor.cli.lanes.lane_commands import How, move_heads
from ackfloor.cli.shared.command_options import Made
from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    Output,
    OutputOption,
    RunBrokersOption,
    SettingsSource,
    YesOption,
)
from ackfloor.cli.shared.read_count import counted
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption, read_state
from ackfloor.core.messages.lane_order import Action as LaneAction
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.dead_letters.rules.waiting import choose_waiting
from ackfloor.live.retry_orders import Action
from ackfloor.operations.lane_moves import LaneMove
from ackfloor.operations.retry_moves import DONE, LEAVES, LEFT, RetryMove, RetryOutcome
from ackfloor.operations.run_client import ControlFailed, workers_of
from ackfloor.runtime.supervision.exit_codes import Exit

_Places = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[/PARTITION/OFFSET]...",
        help="A retry topic, as `retry ls` prints it, or single records of one, as `retry show` "
        "does; or records of a source topic that block a key or partition.",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show how many it would be.")]


class _Asked(NamedTuple):
    """Which waiting records are meant, and how something is done to them."""

    meant: Places
    wanted: DeadLetterFilter
    how: How
    brokers: Brokers


def _asked(
    places: _Places,
    wanted: FilterOptions,
    dry_run: _DryRun = False,
    yes: YesOption = False,
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    because: ReasonOption = None,
    brokers: RunBrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> _Asked:
    meant = Places.of(places)
    how = How.of(dry_run, yes, listen, token_file, brokers.source, output, because)
    return _Asked(meant, wanted, how, brokers)


_AskedOption = Annotated[_Asked, Made(_asked)]


def promote(asked: _AskedOption) -> None:
    """Make waiting records due now, through the run whose workers hold them.

    Each stays the same delivery; only its wait ends. Those that wait behind another one of their
    key are left where they are, to be handled after it. Records of a source topic are those that
    block a key or partition, as `lanes ls` prints them. Exits with 5 if some of them were not
    waiting in a worker of these runs.
    """
    if is_retry_topic(asked.meant.topic):
        _carry_out(_move(Action.PROMOTE, asked), asked)
    else:
        _move_heads(LaneAction.RETRY, asked, "retry promote")


def bury(asked: _AskedOption) -> None:
    """Dead-letter waiting records without another attempt, through the run that holds them.

    Their cause is their last error; the reason becomes dead_letter. Records of a source topic are
    those that block a key or partition, as `lanes ls` prints them. Exits with 5 if some of them
    were not waiting in a worker of these runs.
    """
    if is_retry_topic(asked.meant.topic):
        _carry_out(_move(Action.BURY, asked), asked)
    else:
        _move_heads(LaneAction.DEAD_LETTER, asked, "retry bury")


def is_retry_topic(topic: str) -> bool:
    """Whether a topic's name is that of a retry topic."""
    parsed = parse_topic(topic)
    return parsed is not None and parsed.delay_s is not None


def _move_heads(action: LaneAction, asked: _Asked, command: str) -> None:
    """The same for records of a source topic: those that block their lane."""
    meant, how, source = asked.meant, asked.how, asked.brokers.source
    if meant.only is None:
        fix = f"name its records, such as {meant.topic}/0/17, or use `ackfloor lanes`"
        raise typer.BadParameter(f"{meant.topic!r} is no retry topic: {fix}")
    if asked.wanted != DeadLetterFilter():
        raise typer.BadParameter("records that block a lane are named; leave out what selects them")
    readers = {name for run in how.runs.tokens for name in _readers(run, meant.topic, how, source)}
    if not readers:
        runs = " or ".join(how.runs.tokens)
        raise ControlFailed(f"no worker of the run at {runs} reads {meant.topic}")
    which = {"places": meant.texts()}
    move_heads(LaneMove(action, readers.pop(), which, command=command), how)


def _readers(run: str, topic: str, how: How, source: SettingsSource) -> set[str]:
    """The handlers to which a run's workers give the records of a topic."""
    try:
        state = read_state(run, source)
    except ControlFailed:
        if how.runs.alone:
            raise
        # It is named when it gets the order.
        return set()
    return {
        part["handler"]
        for _, worker in workers_of(state)
        for part in worker["partitions"]
        if part["topic"] == topic
    }


def _move(action: Action, asked: _Asked) -> RetryMove:
    """The order about those of the topic's open records that are meant."""
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics

    meant, wanted = asked.meant, asked.wanted
    misses = Misses(wanted)
    opened = RetryTopics(asked.brokers.options()).open(meant.topic)
    with closing(counted(opened, meant.topic)) as records:
        chosen = choose_waiting(records, meant.only, misses.matches, LEAVES[action])
    misses.tell()
    noted = {"places": meant.texts(), "filter": wanted.to_dict()}
    return RetryMove(action, meant.topic, chosen, noted)


def _carry_out(move: RetryMove, asked: _Asked) -> None:
    count, how = len(move.chosen), asked.how
    if move.chosen.left:
        typer.secho(f"{move.chosen.left:,} {LEFT[move.action]}", err=True)
    if count and not (how.dry_run or how.yes):
        records = f"{count:,} records of {move.topic}"
        confirm(f"{move.action.capitalize()} {records}?", f"this would {move.action} {records}")
    if how.dry_run:
        outcome = move.judge(how.runs)
    else:
        noting = Noting(asked.brokers, move.name, how.reason, move.asked)
        with noting.of([move.topic], group=move.group) as ending:
            outcome = move.act(how.runs, ending)
    _tell(outcome, how)
    if not outcome.whole:
        raise typer.Exit(Exit.PARTIAL if outcome.done else Exit.FAILURE)


def _tell(outcome: RetryOutcome, how: How) -> None:
    if how.output is Output.json:
        facts: dict[str, Any] = {
            "topic": outcome.topic, "action": outcome.action.value, "dry_run": how.dry_run,
            "meant": outcome.meant, "done": outcome.done,
            "silent": sorted({worker for _, worker in outcome.silent}),
            "unreached": outcome.refused, "unknown": outcome.unknown,
        }  # fmt: skip
        typer.echo(json.dumps(facts, indent=2))
    else:
        would = "would be " if how.dry_run else ""
        numbers = f"{outcome.done:,} of {outcome.meant:,}"
        typer.echo(f"{outcome.topic}: {numbers} {would}{DONE[outcome.action]}")
    if outcome.missing:
        these = "this run" if how.runs.alone else "these runs"
        typer.secho(
            f"{outcome.missing:,} do not wait in a worker of {these}: in flight, settled since, "
            "not read yet, or another run's",
            err=True,
        )
    for run, worker in sorted(outcome.silent):
        typer.secho(f"no answer from worker {worker} of {run}", err=True)
    for run, why in outcome.refused.items():
        typer.secho(f"{run}: {why}", fg="red", err=True)
    for why in outcome.unknown.values():
        typer.secho(why, fg="red", err=True)
