"""Read count: how many records a command has read, in one line of a terminal that goes again."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from typing import Final, TypeVar

from ackfloor.core.values.printable import plain

#: After so many records the line is written anew.
EVERY: Final = 500
_CLEARED: Final = "\r\x1b[K"

Read = TypeVar("Read")


def counted(records: Iterable[Read], topic: str) -> Generator[Read, None, None]:
    """What is read; meanwhile, where standard error is a terminal, the topic and how many.

    Nothing of the line stays when the reading ends, however it ends. A caller that writes to
    standard error closes this first, or its text stands behind the count.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield from records
        return
    try:
        for number, record in enumerate(records):
            if number % EVERY == 0:
                _write(_CLEARED + _line(topic, number))
            yield record
    finally:
        _write(_CLEARED)


def _line(topic: str, number: int) -> str:
    """At most as long as the terminal is wide: of a second line the clearing would know nothing."""
    how_many = f": {number:,} read"
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        columns = 80
    return plain(topic)[: max(0, columns - 1 - len(how_many))] + how_many


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
