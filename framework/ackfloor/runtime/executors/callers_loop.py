"""CallersLoop: the event loop of the program that a worker runs in.

Async handlers are tasks on it like the program's own, so its clients and pools work in them. The
loop belongs to the program: nothing here starts, stops or configures it, and whatever ends it, a
SystemExit in a task for example, ends it for the worker too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from ackfloor.runtime.executors.event_loop import EventLoop


class CallersLoop(EventLoop):
    """A loop that runs already, in another thread than the worker's owner thread.

    Args:
        loop: the running loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, "an async handler, or something else that this program does,")
        self._beating: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look whether the loop is blocked."""
        self._beat_s = time.monotonic()
        self.loop.call_soon_threadsafe(self._beat)

    def stop(self) -> None:
        """Leave the loop as it was."""
        # Closed: the program has ended it, and its timers with it.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end)

    def runs(self) -> bool:
        """Whether the program runs it."""
        return self.loop.is_running()

    def _beat(self) -> None:
        self._beat_s = time.monotonic()
        self._beating = self.loop.call_later(self.BEAT_INTERVAL_S, self._beat)

    def _end(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
