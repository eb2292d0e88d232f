"""Signals of a process that supervises others: they become flags."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def run_signals(stop: Callable[[], None], pass_on: Callable[[int], None]) -> Iterator[None]:
    """Turn signals into flags, and put the old handlers back afterwards.

    Args:
        stop: called for SIGTERM and SIGINT.
        pass_on: called with SIGHUP and SIGUSR1, which are for the children.
    """

    def stopped(_number: int, _frame: FrameType | None) -> None:
        stop()

    def passed_on(number: int, _frame: FrameType | None) -> None:
        pass_on(number)

    handlers = {
        signal.SIGTERM: stopped,
        signal.SIGINT: stopped,
        signal.SIGHUP: passed_on,
        signal.SIGUSR1: passed_on,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
