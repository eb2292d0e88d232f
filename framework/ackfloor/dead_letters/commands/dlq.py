"""`ackfloor dlq`: group, list and show dead letters.

The commands that write something are in `dlq_export.py`,
`dlq_replay.py`, `dlq_dispose.py` and `dlq_jobs.py`. What was replayed, discarded or archived
before is hidden unless `--all` asks for it. What `[redaction]` takes away is not shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ackfloor.cli.shared.command_options import Commands
from ackfloor.cli.shared.parameters import (
    OF_SETTINGS,
    BrokersOption,
    LimitOption,
    OfGroupOption,
    Output,
    OutputOption,
)
from ackfloor.cli.shared.read_count import counted
from ackfloor.cli.shared.rows import RowsOption, RowsOutput, json_text, print_rows
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.commands.dead_letter_views import (
    OPTIONAL_COLUMNS,
    OPTIONAL_GROUP_COLUMNS,
    dead_letter_rows,
    dead_letters_text,
    dispositions_shown,
    fields_of,
    group_rows,
    releases_shown,
    what_came_of,
)
from ackfloor.dead_letters.commands.dlq_dispose import archive, discard
from ackfloor.dead_letters.commands.dlq_export import export
from ackfloor.dead_letters.commands.dlq_jobs import cancel, jobs
from ackfloor.dead_letters.commands.dlq_replay import replay
from ackfloor.dead_letters.commands.filter_misses import Misses
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.selection import (
    AllOption,
    DeadLetterSelection,
    PartitionOption,
    Places,
    PlacesArgument,
    TopicsArgument,
    place_of,
    tell_hidden,
)
from ackfloor.dead_letters.rules.cause_groups import CauseGroups
from ackfloor.runtime.supervision.exit_codes import Exit

if TYPE_CHECKING:
    from ackfloor.dead_letters.kafka.dead_letter_topic import StoredDeadLetter

dlq_app = Commands(
    name="dlq",
    help="List, show, redrive and dispose of dead letters.",
    no_args_is_help=True,
)


@dlq_app.command()
def groups(
    wanted: FilterOptions,
    topics: TopicsArgument = None,
    group: OfGroupOption = None,
    all_: AllOption = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Dead letters by handler and cause: how many, since when, and the latest of each.

    "first" is when one of them failed for the first time, before its retries; "last" is when the
    last of them was given up.
    """
    reading = DeadLetterSelection.open(brokers)
    found, misses, hidden = CauseGroups(), Misses(wanted), 0
    for topic in topics or reading.topics.names(group):
        for each in counted(reading.topics.dead_letters(topic), topic):
            if not misses.matches(each.dead_letter):
                continue
            if each.disposed and not all_:
                hidden += 1
            else:
                found.add(each.dead_letter)
    rows = group_rows(found.largest_first(), reading.rules)
    if output is RowsOutput.table:
        rows = releases_shown(rows)
    print_rows(rows, output, spare=OPTIONAL_GROUP_COLUMNS)
    misses.tell()
    tell_hidden(hidden)


@dlq_app.command()
def ls(
    places: PlacesArgument,
    wanted: FilterOptions,
    limit: LimitOption = 100,
    partition: PartitionOption = None,
    scan_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Stop when so many were read, matching or not."),
    ] = None,
    all_: AllOption = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: RowsOption = RowsOutput.table,
) -> None:
    """Dead letters one by one, oldest first within each partition.

    With --all each that was replayed, discarded or archived says so: when, by whom, by which job,
    and where it went.
    """
    named = Places.of(places)
    reading = DeadLetterSelection.open(brokers)
    found: list[StoredDeadLetter] = []
    hidden, more = 0, False
    for each in reading.dead_letters(named, wanted, partition, scan_limit, noted=all_):
        if each.disposed and not all_:
            hidden += 1
        elif len(found) == limit:
            more = True
            break
        else:
            found.append(each)
    rows = dead_letter_rows(found, reading.rules)
    if output is RowsOutput.table:
        rows = dispositions_shown(rows)
    print_rows(rows, output, spare=OPTIONAL_COLUMNS)
    if more:
        typer.secho(f"there are more: raise --limit {limit}, or narrow it down", err=True)
    tell_hidden(hidden)
    reading.tell_source(named.topic)


@dlq_app.command()
def show(
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC/PARTITION/OFFSET",
            help="A dead letter, as `dlq ls` prints it; or a record of a source topic, as logs, "
            "`inflight` and `lanes ls` name it: its dead letters are looked for.",
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            envvar="ACKFLOOR_GROUP",
            help="Of a record of a source topic: only dead letters of this consumer group.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Only the payload, byte for byte, to standard output; refused where [redaction] "
            "has rules.",
        ),
    ] = False,
    brokers: BrokersOption = OF_SETTINGS,
    output: OutputOption = Output.table,
) -> None:
    """One dead letter: why it died, where it came from, what was done with it, headers and payload.

    Of a record of a source topic all dead letters are shown, the newest first, also those that were
    replayed, discarded or archived; as JSON they are a list. Its dead-letter topics are read whole
    for that.
    """
    named = place_of(place)
    reading = DeadLetterSelection.open(brokers)
    if raw and reading.rules.active:
        typer.secho("--raw would show what [redaction] takes away; leave it out", err=True)
        raise typer.Exit(Exit.USAGE)
    ours = parse_topic(named[0]) is not None
    of_record = [] if ours else reading.of_record(*named, group)
    if raw and len(of_record) > 1:
        which = ", ".join(each.dead_letter.place for each in of_record)
        typer.secho(f"--raw writes one payload, and {place} has several: give {which}", err=True)
        raise typer.Exit(Exit.USAGE)
    found = of_record or [reading.topics.dead_letter(*named)]
    if not (ours or of_record or found[0].dead_letter.says_it_failed):
        typer.secho(f"{place}: a record that no header calls a dead letter", fg="yellow", err=True)
    if raw:
        sys.stdout.buffer.write(found[0].dead_letter.value or b"")
        return
    if output is Output.json:
        facts = [fields_of(each, reading.rules) for each in found]
        typer.echo(json_text(facts if of_record else facts[0], indent=2))
    else:
        typer.echo(dead_letters_text(found, reading.rules))
        if ours and (line := what_came_of(found[0])):
            typer.secho(line, err=True)


dlq_app.command()(export)
dlq_app.command()(replay)
dlq_app.command()(discard)
dlq_app.command()(archive)
dlq_app.command()(jobs)
dlq_app.command()(cancel)
