"""Signals of commands that run until they are stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stoppable(Protocol):
    """Work that shuts down cleanly on request."""

    def stop(self) -> None:
        """End soon."""
        ...


@contextmanager
def stopped_by_signals(work: Stoppable) -> Iterator[None]:
    """SIGTERM and Ctrl-C end it cleanly; a second one ends it at once."""
    before = {}

    def ask(number: int, _: object) -> None:
        work.stop()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
