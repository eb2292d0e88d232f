"""Rows: prints a command's results as a table, JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ackfloor.core.values.json_bytes import json_bytes

Row = Mapping[str, object]


class RowsOutput(StrEnum):
    """How rows are printed."""

    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


RowsOption = Annotated[
    RowsOutput,
    typer.Option("-o", "--output", envvar="ACKFLOOR_OUTPUT", help="table, json, jsonl or csv."),
]


def print_rows(
    rows: Sequence[Row],
    output: RowsOutput,
    columns: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows to standard output.

    Args:
        rows: all with the same names.
        columns: the names, for a heading if there is no row.
        spare: the columns that a table in a narrow terminal drops, in this order.
    """
    names = list(rows[0]) if rows else list(columns)
    if output is RowsOutput.json:
        typer.echo(json_text(rows, indent=2))
    elif output is RowsOutput.jsonl:
        for row in rows:
            typer.echo(json_text(row))
    elif output is RowsOutput.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_field(row[name]) for name in names] for row in rows)
    else:
        from ackfloor.cli.shared.tables import print_table

        print_table(rows, spare)


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON that is safe to print, whatever characters it holds."""
    return json_bytes(value, indent).decode()


def _field(value: object) -> object:
    """A value for CSV; a list is joined to one text."""
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value
