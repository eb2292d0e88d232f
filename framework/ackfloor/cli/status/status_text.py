"""The lines of `ackfloor status` for people: text is wrapped, a command never is.

A command is to be copied in one piece, so it has a line of its own, however long it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import typer

from ackfloor.cli.status.entries import Entry, entries
from ackfloor.cli.status.status_line import State, StatusLine, counted
from ackfloor.core.values.printable import plain

_COLOURS: Final = {State.wrong: "red", State.note: "yellow", State.ok: "green"}
_STATE: Final = max(map(len, State)) + 2
#: Characters in front of a text: the state, and what it is about.
_BEFORE: Final = _STATE + len("quarantined") + 2
#: Narrower than this nothing is readable; the terminal wraps what is too long.
_LEAST: Final = 24


def print_status(lines: Sequence[StatusLine]) -> None:
    """Print lines to standard output, in this order, at most as wide as the terminal."""
    from ackfloor.cli.shared.tables import console

    target = console()
    bounded = "COLUMNS" in os.environ or target.is_terminal
    width = max(_LEAST, target.width - _BEFORE) if bounded else None
    shown = entries(lines)
    typer.echo(summary(shown))
    many = len({line.group for line in lines if line.group}) > 1
    for entry in shown:
        for text in texts(entry, width, names_group=many):
            typer.echo(text)


def summary(shown: Sequence[Entry]) -> str:
    """How much is wrong, in a line."""
    wrong = sum(entry.line.state is State.wrong for entry in shown)
    if not wrong:
        return "nothing is wrong"
    return f"{counted(wrong, 'thing is', 'things are')} wrong; look at the first one first"


def texts(entry: Entry, width: int | None, *, names_group: bool) -> list[str]:
    """One entry of the status as lines of text.

    Args:
        width: characters for its text; None for no limit.
        names_group: there are several groups.
    """
    line = entry.line
    detail = plain(" ".join(line.detail.split()))
    if names_group and line.group and line.about != "run":
        detail = f"{line.group}: {detail}"
    also = [plain(f"also {' '.join(each.detail.split())}") for each in entry.follows]
    rows = [row for text in (detail, *also) for row in _wrapped(text, width)]
    mark = typer.style(f"{line.state.value:<{_STATE}}", fg=_COLOURS[line.state])
    first = f"{mark}{line.about:<{_BEFORE - _STATE}}{rows[0]}"
    rest = [f"{'':<{_BEFORE}}{row}" for row in rows[1:]]
    if line.next and line.state is not State.ok:
        rest.append(f"{'':<{_STATE}}{plain(line.next)}")
    return [first, *rest]


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else wrap(text, width) or [""]
