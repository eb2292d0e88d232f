"""Tables for people: rows that stay one line each, however narrow the terminal is.

Names are copied into the next command: a place, a topic, a fingerprint, a job. So no cell is ever
wrapped, and no name is cut. Where a terminal is too narrow, a table does without columns, in the
order that its command says; of those, free text is shortened first. What is still too long goes on
in the terminal's next line, in one piece for who copies it. A pipe gets everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackfloor.core.values.printable import plain

#: Characters of a line where there is no terminal that says, for what is not a table.
PIPE_WIDTH = 200
#: Columns that say something in a part of it too, and the least part.
FREE_TEXT = frozenset({"key", "message", "note", "notes", "why"})
LEAST = 12
#: Around all columns, and between two of them.
_EDGES, _BETWEEN = 2, 2

Row = Mapping[str, object]


def print_table(rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print rows as a table to standard output, as wide as the terminal lets it be.

    Args:
        rows: all with the same names.
        spare: what a narrow terminal does without, the first to go first.
    """
    target = console()
    width = target.width if "COLUMNS" in os.environ or target.is_terminal else None
    table, gone = fitted(rows, width, spare)
    target.print(table, soft_wrap=True)
    if gone:
        typer.secho(f"no room for {', '.join(gone)}: -o json has all", err=True, dim=True)


def fitted(
    rows: Sequence[Row], width: int | None, spare: Sequence[str]
) -> tuple[Table, Sequence[str]]:
    """A table of as much as fits into a line, and the names of the columns that don't.

    Args:
        width: characters of a line; None for as many as it takes.
        spare: what may go, the first to go first.
    """
    cells = {name: [_cell(row[name]) for row in rows] for name in (rows[0] if rows else ())}
    widths = {name: _width(name, column) for name, column in cells.items()}
    gone: list[str] = []
    for name in spare if width is not None else ():
        over = _total(widths) - (width or 0)
        if over <= 0:
            break
        if name not in widths:
            continue
        left = widths[name] - over
        if name in FREE_TEXT and left >= LEAST:
            widths[name] = left
        else:
            del widths[name]
            gone.append(name)
    return _table(rows, {name: cells[name] for name in widths}, widths), gone


def _table(
    rows: Sequence[Row], cells: Mapping[str, Sequence[Text]], widths: Mapping[str, int]
) -> Table:
    # Its own width, whatever the terminal's is: else columns would be shrunk.
    width = _total(widths) if rows else None
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, width=width)
    if not rows:
        table.add_column("nothing found")
    for name, width in widths.items():
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        justify = "right" if numbers else "left"
        table.add_column(name, justify=justify, width=width, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for each in zip(*cells.values(), strict=True):
        table.add_row(*each)
    return table


def _width(name: str, column: Sequence[Text]) -> int:
    lines = [*name.splitlines(), *(line for cell in column for line in cell.plain.splitlines())]
    return max(map(cell_len, lines), default=1)


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + _BETWEEN * (len(widths) - 1) + _EDGES


def console(pipe_width: int = PIPE_WIDTH) -> Console:
    """Standard output, with room for a line where nobody looks at a terminal."""
    found = Console()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = Console(width=pipe_width)
    return found


def _cell(value: object) -> Text:
    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple):
        return Text("\n".join(_line(each) for each in value) or "-")
    return Text(f"{value:,}" if isinstance(value, int | float) else _line(value))


def _line(value: object) -> str:
    """A value in one line."""
    return plain(" ".join(str(value).split("\n"))).replace("\t", " ")
