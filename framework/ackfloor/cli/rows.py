"""Rows: what a command has found, as a table for people or as JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Characters of a line where there is no terminal that says.
PIPE_WIDTH = 200

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


def print_rows(rows: Sequence[Row], output: RowsOutput, columns: Sequence[str] = ()) -> None:
    """Print rows to standard output.

    Args:
        rows: all with the same names.
        columns: these names, for a heading where there is no row.
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
        console().print(table_of(rows))


def table_of(rows: Sequence[Row]) -> Table:
    """Rows as a table; columns of numbers are aligned on the right."""
    table = Table(box=SIMPLE_HEAD)
    for name in rows[0] if rows else ("nothing found",):
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        # A place is copied into the next command: folded where it must be, and never cut.
        table.add_column(name, justify="right" if rows and numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def console(pipe_width: int = PIPE_WIDTH) -> Console:
    """Standard output, with room for a line where nobody looks at a terminal."""
    found = Console()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = Console(width=pipe_width)
    return found


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON that can be printed: half a surrogate pair stays an escape."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def plain(text: str) -> str:
    """Text with nothing in it that a terminal would obey: it may come from anywhere."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\x{ord(each):02x}" for each in text
    )


def _field(value: object) -> object:
    """A value of CSV: what is a list is one text."""
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _cell(value: object) -> Text:
    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple):
        return Text("\n".join(plain(str(each)) for each in value) or "-")
    return Text(f"{value:,}" if isinstance(value, int | float) else plain(str(value)))
