"""`ackfloor status`: the first command of an incident: what is wrong, and what to type next."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, Brokers, RunBrokersOption
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, print_rows
from ackfloor.cli.shared.run_address import ListensOption
from ackfloor.cli.status.entries import with_handlers
from ackfloor.cli.status.group_look import looks
from ackfloor.cli.status.group_status import group_lines
from ackfloor.cli.status.next_commands import NextCommands
from ackfloor.cli.status.run_answers import RunAnswer, answers_of, readers_of
from ackfloor.cli.status.run_status import run_lines
from ackfloor.cli.status.status_line import COLUMNS, State, StatusLine, worst_first
from ackfloor.cli.status.status_text import print_status
from ackfloor.cli.status.working_off import with_working_off
from ackfloor.errors import KafkaUnreachable
from ackfloor.runtime.supervision.exit_codes import Exit


def status(
    group: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_GROUP",
            help="This consumer group.",
            show_default="those of the runs that answer, else all with retry or dead-letter topics",
        ),
    ] = None,
    listen: ListensOption = None,
    brokers: RunBrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Show what is wrong, the worst first, and the command to type next for each of it.

    It asks the runs at their addresses and Kafka, and changes nothing. What does not answer is
    named, and the rest is shown. "wrong" needs somebody: a run that is not ready, an open circuit
    breaker, keys that hang with records behind them, blocked lanes and quarantined keys, retries
    that are overdue by five minutes, dead letters. "note" is worth knowing, or ends by itself: lag,
    retries that wait, what an operator paused or forced, a job that redrives. Dead letters are
    grouped by cause, the newest five first. What follows from an open breaker or another cause of
    the same handler, such as lanes that wait and retries that are overdue, stands under it, after
    "also"; -o json has a row of its own for each.

    What was mended stays wrong until its records are handled. Meanwhile the line says what shows
    that it gets better: trials succeed, retries are being worked off, a key is tried again in 9s.

    It is quick however much there is: the causes are those of the newest 1,000 dead letters of a
    partition, and of a retry topic 10,000 records are read; a line says where there are more.

    Exit code 0 if nothing is wrong, 1 if something is, 4 if no broker answers, 5 if a run that was
    named does not answer.
    """
    answers = answers_of(listen, brokers.source)
    commands = NextCommands.after(listen, brokers)
    lines = [*run_lines(answers, commands)]
    reached = True
    try:
        lines += _of_kafka(_groups(group, answers), commands, brokers)
    except KafkaUnreachable as exc:
        reached = False
        text = f"{exc}. Lag, retry topics and dead letters are not known"
        lines.append(StatusLine(State.wrong, "kafka", text, next=commands.asks_kafka("doctor")))
    found = worst_first(with_working_off(with_handlers(lines, readers_of(answers)), answers))
    if output is RowsOutput.table:
        print_status(found)
    else:
        print_rows([line.row() for line in found], output, COLUMNS)
    code = _exit_code(found, answers, reached=reached)
    if code is not Exit.OK:
        raise typer.Exit(code)


def _groups(group: str | None, answers: Sequence[RunAnswer]) -> Sequence[str] | None:
    """The groups to look at; None for all that park."""
    if group is not None:
        return [group]
    return sorted({each.group for each in answers if each.group}) or None


def _of_kafka(
    groups: Sequence[str] | None, commands: NextCommands, brokers: Brokers
) -> Iterator[StatusLine]:
    rules = brokers.settings().redaction.rules()
    for look in looks(brokers.options(), groups):
        yield from group_lines(look, commands, rules, time.time_ns() // 1_000_000)


def _exit_code(lines: Sequence[StatusLine], answers: Sequence[RunAnswer], *, reached: bool) -> Exit:
    if not reached:
        return Exit.KAFKA_UNREACHABLE
    if any(each.named and each.error for each in answers):
        return Exit.PARTIAL
    return Exit.FAILURE if any(line.state is State.wrong for line in lines) else Exit.OK
