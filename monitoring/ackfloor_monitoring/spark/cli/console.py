"""Standard output as tables are printed on it."""

from __future__ import annotations

import os

from rich.console import Console


def console_out(pipe_width: int) -> Console:
    """A console of `pipe_width` columns in a pipe, where nothing has to be folded."""
    console = Console()
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(width=pipe_width)
