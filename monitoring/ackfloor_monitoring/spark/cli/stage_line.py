"""The stage line: what Spark is doing, in one line of a terminal that goes again.

Only a terminal gets it, whatever the environment says of colours: in a file or a log the pictures
of a spinner would stay. The cursor waits at the line's start, so what Java writes meanwhile stands
in front, not behind half a sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_CLEARED: Final = "\r\x1b[K"


@contextmanager
def stage_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show what is done first; yields a function that shows what is done next.

    Nothing of the line stays at the block's end, however it ends.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    try:
        _show(text)
        yield _show
    finally:
        _write(_CLEARED)


def _show(text: str) -> None:
    """At most as long as the terminal is wide: of a second line the clearing would know nothing."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        columns = 80
    shown = "".join(each if each.isprintable() else "?" for each in text)
    _write(f"{_CLEARED}{shown[: columns - 1]}\r")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
