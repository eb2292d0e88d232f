"""`ackfloor dlq export`: dead letters in full, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ackfloor.cli.shared.parameters import OF_SETTINGS, BrokersOption
from ackfloor.dead_letters.commands.export_files import ExportFormat, written
from ackfloor.dead_letters.commands.filter_options import FilterOptions
from ackfloor.dead_letters.commands.redrive_views import counted_dead_letters
from ackfloor.dead_letters.commands.selection import (
    AllOption,
    DeadLetterSelection,
    PartitionOption,
    Places,
    PlacesArgument,
    tell_hidden,
)
from ackfloor.runtime.supervision.exit_codes import Exit


def export(
    places: PlacesArgument,
    wanted: FilterOptions,
    partition: PartitionOption = None,
    format_: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            envvar="ACKFLOOR_DLQ_EXPORT_FORMAT",
            help="jsonl, csv or parquet; only jsonl can be edited and replayed.",
        ),
    ] = ExportFormat.jsonl,
    file: Annotated[
        Path | None,
        typer.Option(
            envvar="ACKFLOOR_DLQ_EXPORT_FILE",
            help="A new file to write; parquet needs one.",
            show_default="standard output",
        ),
    ] = None,
    all_: AllOption = False,
    brokers: BrokersOption = OF_SETTINGS,
) -> None:
    """Dead letters in full, as JSON, a line for each, without what [redaction] hides.

    Nothing is changed. What is not UTF-8 stands under a name that ends in _base64. CSV and Parquet
    have the same fields as columns, with the headers as JSON. With --all each that was replayed,
    discarded or archived says when, by whom, by which job, and where it went.
    """
    if format_ is ExportFormat.parquet and file is None:
        typer.secho("--format parquet is no text: name a --file", err=True)
        raise typer.Exit(Exit.USAGE)
    named = Places.of(places)
    reading = DeadLetterSelection.open(brokers)
    hidden = count = 0
    with written(format_, file, reading.rules) as writer:
        for each in reading.dead_letters(named, wanted, partition, noted=all_):
            if each.disposed and not all_:
                hidden += 1
                continue
            writer.write(each)
            count += 1
    typer.secho(counted_dead_letters(count), err=True)
    tell_hidden(hidden)
