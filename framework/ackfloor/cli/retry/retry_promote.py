"""`ackfloor retry promote|bury`: end the wait of records in a retry topic.

The command sends an order to the run's address, and the worker that has the partition carries it
out: only this worker knows which records are in flight. So no record is lost, and none that is
settled is handled again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from ackfloor.cli.lanes.lane_commands import How, move_heads
from ackfloor.cli.shared.confirmation import confirm
from ackfloor.cli.shared.noting import Noting, ReasonOption
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    Brokers,
    BrokersOption,
    Output,
    OutputOption,
    SettingsSource,
    YesOption,
)
from ackfloor.cli.shared.read_count import counted
from ackfloor.cli.shared.run_address import ListensOption, TokenFileOption, read_state
from ackfloor.core.messages.lane_order import Action as LaneAction
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import DID_NOT_FAIL, Reason
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.selection import Places
from ackfloor.dead_letters.rules.dead_letter_filter import DeadLetterFilter
from ackfloor.live.retry_orders import Action
from ackfloor.live.retry_requests import MOST, PATH
from ackfloor.operations.lane_moves import LaneMove
from ackfloor.operations.run_client import ControlFailed, workers_of
from ackfloor.runtime.supervision.exit_codes import Exit

_Places = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[/PARTITION/OFFSET]...",
        help="A retry topic, or single records of one, as `retry show` prints them; or records "
        "of a source topic that block a key or partition.",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show how many it would be.")]

#: It has been dead-lettered: what waits is the note that keeps its key in quarantine.
_DEAD_ALREADY = frozenset({Reason.HELD})
_LEFT = {
    Action.PROMOTE: "wait behind another one of their key, and are left: they are handled after it"
    "; `lanes ls` shows it",
    Action.BURY: "are in the dead-letter topic, and are left: they keep their key in quarantine"
    "; `lanes retry` frees it",
}
_DONE = {Action.PROMOTE: "due now", Action.BURY: "on the way to the dead-letter topic"}


def promote(
    places: _Places,
    wanted: FilterOptions,
    dry_run: _DryRun = False,
    yes: YesOption = False,
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Make waiting records due now, through the run whose workers hold them.

    Each stays the same delivery; only its wait ends. Those that wait behind another one of their
    key are left where they are, to be handled after it. Records of a source topic are those that
    block a key or partition, as `lanes ls` prints them. Exits with 5 if some of them were not
    waiting in a worker of these runs.
    """
    meant = Places.of(places)
    how = How.of(dry_run, yes, listen, token_file, brokers.source, output, because)
    if is_retry_topic(meant.topic):
        noting = _noting(Action.PROMOTE, meant, wanted, brokers, because)
        _carry_out(Action.PROMOTE, Selected.of(meant, wanted, brokers, DID_NOT_FAIL), how, noting)
    else:
        _move_heads(LaneAction.RETRY, meant, wanted, how, brokers.source, "retry promote")


def bury(
    places: _Places,
    wanted: FilterOptions,
    dry_run: _DryRun = False,
    yes: YesOption = False,
    listen: ListensOption = None,
    token_file: TokenFileOption = None,
    because: ReasonOption = None,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """Dead-letter waiting records without another attempt, through the run that holds them.

    Their cause is their last error; the reason becomes dead_letter. Records of a source topic are
    those that block a key or partition, as `lanes ls` prints them. Exits with 5 if some of them
    were not waiting in a worker of these runs.
    """
    meant = Places.of(places)
    how = How.of(dry_run, yes, listen, token_file, brokers.source, output, because)
    if is_retry_topic(meant.topic):
        noting = _noting(Action.BURY, meant, wanted, brokers, because)
        _carry_out(Action.BURY, Selected.of(meant, wanted, brokers, _DEAD_ALREADY), how, noting)
    else:
        _move_heads(LaneAction.DEAD_LETTER, meant, wanted, how, brokers.source, "retry bury")


def is_retry_topic(topic: str) -> bool:
    """Whether a topic's name is that of a retry topic."""
    parsed = parse_topic(topic)
    return parsed is not None and parsed.delay_s is not None


def _move_heads(
    action: LaneAction,
    meant: Places,
    wanted: DeadLetterFilter,
    how: How,
    source: SettingsSource,
    command: str,
) -> None:
    """The same for records of a source topic: those that block their lane."""
    if meant.only is None:
        fix = f"name its records, such as {meant.topic}/0/17, or use `ackfloor lanes`"
        raise typer.BadParameter(f"{meant.topic!r} is no retry topic: {fix}")
    if wanted != DeadLetterFilter():
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


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected records of a retry topic.

    Attributes:
        places: partition and offset of each open record.
        gone: how many of the named records are not open.
        left: how many of the others are not meant, because of their reason.
    """

    topic: str
    places: list[tuple[int, int]]
    gone: int
    left: int = 0

    @classmethod
    def of(
        cls, places: Places, wanted: DeadLetterFilter, brokers: Brokers, leave: Collection[Reason]
    ) -> Selected:
        """Select among the open records of the topic, without those of some reasons."""
        from ackfloor.dead_letters.kafka.retry_topic import RetryTopics

        retry_topics = RetryTopics(brokers.options())
        only = None if places.only is None else {p: set(o) for p, o in places.only.items()}
        found, misses, left = [], Misses(wanted), 0
        for record in counted(retry_topics.open(places.topic), places.topic):
            if only is not None:
                offsets = only.get(record.partition, set())
                if record.offset not in offsets:
                    continue
                offsets.remove(record.offset)
            if not misses.matches(record):
                continue
            if record.envelope.reason in leave:
                left += 1
            else:
                found.append((record.partition, record.offset))
        misses.tell()
        return cls(places.topic, found, sum(map(len, (only or {}).values())), left)


@dataclass(slots=True)
class Reached:
    """What the runs answered.

    Attributes:
        count: how many records they did it to.
        silent: the workers that did not answer, with their run.
        unreached: run -> why it did nothing.
    """

    count: int = 0
    silent: set[tuple[str, int]] = field(default_factory=set)
    unreached: dict[str, str] = field(default_factory=dict)

    def all_of(self, meant: int) -> bool:
        """Whether all runs answered, and did it to as many as were meant."""
        return not (self.silent or self.unreached) and self.count >= meant


def _noting(
    action: Action, meant: Places, wanted: DeadLetterFilter, brokers: Brokers, because: str | None
) -> Noting:
    """What is noted of it: which records were meant, and which of them were asked for."""
    given = {"places": meant.texts(), "filter": wanted.to_dict()}
    return Noting(brokers, f"retry {action}", because, given)


def _carry_out(action: Action, meant: Selected, how: How, noting: Noting) -> None:
    topic, places = meant.topic, meant.places
    if meant.left:
        typer.secho(f"{meant.left:,} {_LEFT[action]}", err=True)
    if places and not (how.dry_run or how.yes):
        records = f"{len(places):,} records of {topic}"
        confirm(f"{action.capitalize()} {records}?", f"this would {action} {records}")
    reached, all_ = Reached(unreached=dict(how.runs.unreached)), len(places) + meant.gone
    if how.dry_run:
        _ask(Action.COUNT, meant, how, reached)
    else:
        parsed = parse_topic(topic)
        with noting.of([topic], group="" if parsed is None else parsed.group) as ending:
            _ask(action, meant, how, reached)
            ending.whole = reached.all_of(all_)
            ending.counts = {"done": reached.count, "meant": all_}
    _tell(action, topic, all_, reached, how)
    if not reached.all_of(all_):
        raise typer.Exit(Exit.PARTIAL if reached.count else Exit.FAILURE)


def _ask(action: Action, meant: Selected, how: How, reached: Reached) -> None:
    """Give the order to all runs, and add up what they answer."""
    for part in _parts(meant.places):
        body = {"action": action, "topic": meant.topic, "places": part}
        for run, answer in how.runs.post(PATH, body, reached.unreached):
            reached.count += answer["count"]
            reached.silent.update((run, worker) for worker in answer["workers"]["silent"])


def _tell(action: Action, topic: str, meant: int, reached: Reached, how: How) -> None:
    count = reached.count
    if how.output is Output.json:
        facts: dict[str, Any] = {
            "topic": topic, "action": action.value, "dry_run": how.dry_run, "meant": meant,
            "done": count, "silent": sorted({worker for _, worker in reached.silent}),
            "unreached": reached.unreached,
        }  # fmt: skip
        typer.echo(json.dumps(facts, indent=2))
    else:
        would = "would be " if how.dry_run else ""
        typer.echo(f"{topic}: {count:,} of {meant:,} {would}{_DONE[action]}")
    if count < meant:
        these = "this run" if how.runs.alone else "these runs"
        typer.secho(
            f"{meant - count:,} do not wait in a worker of {these}: in flight, settled since, not "
            "read yet, or another run's",
            err=True,
        )
    for run, worker in sorted(reached.silent):
        typer.secho(f"no answer from worker {worker} of {run}", err=True)
    for run, why in reached.unreached.items():
        typer.secho(f"{run}: {why}", fg="red", err=True)


def _parts(places: list[tuple[int, int]]) -> Iterator[dict[str, list[int]]]:
    """The places of each request, at most `MOST` in one."""
    for begin in range(0, len(places), MOST):
        part: dict[str, list[int]] = {}
        for partition, offset in places[begin : begin + MOST]:
            part.setdefault(str(partition), []).append(offset)
        yield part
