"""Tables for people: each row stays one line, however narrow the terminal is.

People copy names into the next command: a place, a topic, a fingerprint, a job. So no cell is ever
wrapped, and no name is cut. In a terminal that is too narrow, a table drops columns in the order
that its command gives; of those, free text is shortened first, and an error loses its module and
the end of what it says, but never goes: it is what people look for. A row that is still too long
goes on in the terminal's next line and can be copied in one piece. A pipe gets everything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ackfloor.core.values.printable import plain

if TYPE_CHECKING:
    from ackfloor.cli.shared.rows import Row

#: Characters of a line without a terminal, for output other than tables.
PIPE_WIDTH = 200
#: Columns that may be shortened, and to how many characters at least.
FREE_TEXT = frozenset({"key", "message", "note", "notes", "why"})
LEAST = 12
#: Of an error that says more than its class, at least so many characters, and the class.
LEAST_OF_ERROR = 20
#: Columns of errors: of one that is a class, a narrow table shows the name without its module.
ERRORS = frozenset({"error"})
_CLASS = re.compile(r"(?:\w+\.)+(?P<name>\w+)")
#: Columns of numbers that name something, and count nothing.
NAMES = frozenset({"partition", "pid", "worker"})
#: Characters around all columns, and between two of them.
_EDGES, _BETWEEN = 2, 2


def print_table(rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print rows as a table to standard output, at most as wide as the terminal.

    Args:
        rows: all with the same names.
        spare: the columns that a narrow terminal drops, in this order.
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
    """A table of the columns that fit into a line, and the names of the dropped ones.

    Args:
        width: characters of a line; None for no limit.
        spare: the columns that may be dropped, in this order.
    """
    cells = {name: [_cell(name, row[name]) for row in rows] for name in (rows[0] if rows else ())}
    widths = {name: _width(name, column) for name, column in cells.items()}
    gone: list[str] = []
    for name in spare if width is not None else ():
        over = _total(widths) - (width or 0)
        if over <= 0:
            break
        if name not in widths:
            continue
        left = widths[name] - over
        if name in ERRORS:
            cells[name] = [_without_module(cell) for cell in cells[name]]
            least = max(map(_least_of_error, cells[name]), default=0)
            widths[name] = min(_width(name, cells[name]), max(left, least, len(name)))
        elif name in FREE_TEXT and left >= LEAST:
            widths[name] = left
        else:
            del widths[name]
            gone.append(name)
    return _table(rows, {name: cells[name] for name in widths}, widths), gone


def _table(
    rows: Sequence[Row], cells: Mapping[str, Sequence[Text]], widths: Mapping[str, int]
) -> Table:
    if not rows:
        nothing = Table.grid()
        nothing.add_row("nothing found")
        return nothing
    # Its own width, not the terminal's: else rich would shrink columns.
    width = _total(widths)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, width=width)
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
    """Standard output, with long lines if it is no terminal."""
    found = Console()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = Console(width=pipe_width)
    return found


def _without_module(cell: Text) -> Text:
    match = _CLASS.fullmatch(cell.plain)
    return cell if match is None else Text(match["name"])


def _least_of_error(cell: Text) -> int:
    """How many characters of an error are shown, however little room there is."""
    return max(cell_len(cell.plain.partition(":")[0]), min(cell_len(cell.plain), LEAST_OF_ERROR))


def _cell(name: str, value: object) -> Text:
    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, list | tuple):
        return Text("\n".join(_line(each) for each in value) or "-")
    if isinstance(value, int | float) and name not in NAMES:
        return Text(f"{value:,}")
    return Text(_line(value))


def _line(value: object) -> str:
    """A value in one line."""
    return plain(" ".join(str(value).split("\n"))).replace("\t", " ")
