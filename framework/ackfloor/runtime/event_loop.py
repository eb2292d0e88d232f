"""The event loop's thread: where async handlers, the lifespan and async publishes run.

asyncio lets SystemExit and KeyboardInterrupt of any task end `run_forever`. Here they ask the
worker to stop, like those of a handler, and the loop goes on: a worker that drains needs it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def fastest_loop() -> asyncio.AbstractEventLoop:
    """A uvloop loop where that extra is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class EventLoopThread:
    """One event loop in a daemon thread of its own.

    Attributes:
        loop: the loop, running from `start` to `stop`.
        on_fatal: is told of what ended the loop, on the loop's thread.
    """

    BEAT_INTERVAL_S = 0.5

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop] = fastest_loop) -> None:
        self.loop = factory()
        self.on_fatal: Callable[[BaseException], None] = _ignore
        self._beat_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="ackfloor:asyncio", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop from another thread; the future waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop from another thread and wait for its result."""
        return self.submit(coroutine).result(timeout_s)

    def stop(self) -> None:
        """Stop the loop; a loop that is blocked by a handler is left to its daemon thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self.loop.close()

    def silence_s(self) -> float:
        """For how many seconds nothing has run on the loop although something should have."""
        if not self._thread.is_alive():
            return 0.0
        return max(0.0, time.monotonic() - self._beat_s - self.BEAT_INTERVAL_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._beat)
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as exc:
                self.on_fatal(exc)
            else:
                return

    def _beat(self) -> None:
        self._beat_s = time.monotonic()
        self.loop.call_later(self.BEAT_INTERVAL_S, self._beat)


def _ignore(_: BaseException) -> None:
    """Nobody is there to be told."""
