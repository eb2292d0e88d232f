"""The event loop on which async handlers, the lifespan and async publishes run: in its own thread.

A worker inside a program that has an event loop uses that one: `callers_loop`.

asyncio lets SystemExit and KeyboardInterrupt of any task or callback end `run_forever`, and so does
`loop.stop()`. Here the loop goes on: all handlers share it, and no record may end it. A handler
that awaits such a task gets the exception there, and fails with it; otherwise it is only logged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("ackfloor.worker")


def fastest_loop() -> asyncio.AbstractEventLoop:
    """A uvloop loop where that extra is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class EventLoop(ABC):
    """An event loop as a worker uses it, from other threads.

    Attributes:
        loop: the loop, running from `start` to `stop`.
        on_stray: called with a SystemExit or KeyboardInterrupt that left a task or a callback, on
            the loop's thread; where the loop is the worker's own.
        users: what may block it, for people.
    """

    BEAT_INTERVAL_S = 0.5

    def __init__(self, loop: asyncio.AbstractEventLoop, users: str) -> None:
        self.loop = loop
        self.users = users
        self.on_stray: Callable[[BaseException], None] = _log
        self._beat_s = time.monotonic()

    @abstractmethod
    def start(self) -> None:
        """A worker begins to use it."""

    @abstractmethod
    def stop(self) -> None:
        """A worker uses it no more; a loop that is blocked by a handler is left alone."""

    @abstractmethod
    def runs(self) -> bool:
        """Whether it should do what it is given."""

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop from another thread; the future waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop from another thread and wait for its result."""
        return self.submit(coroutine).result(timeout_s)

    def silence_s(self) -> float:
        """For how many seconds nothing has run on the loop although something should have."""
        if not self.runs():
            return 0.0
        return max(0.0, time.monotonic() - self._beat_s - self.BEAT_INTERVAL_S)


class EventLoopThread(EventLoop):
    """One event loop in a daemon thread of its own."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop] = fastest_loop) -> None:
        super().__init__(factory(), "an async handler")
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="ackfloor:asyncio", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop; a loop that is blocked by a handler is left to its daemon thread."""
        self.stop_soon()
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self.loop.close()

    def stop_soon(self) -> None:
        """Have the loop stop once it has done what is ready, without a wait; any thread may."""
        self._ending = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def runs(self) -> bool:
        """Whether its thread does."""
        return self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._beat)
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as exc:
                self.on_stray(exc)
                if self._ending:
                    # asyncio has forgotten a stop that was asked for in the same round.
                    self.loop.call_soon(self.loop.stop)
            else:
                if self._ending:
                    return

    def _beat(self) -> None:
        self._beat_s = time.monotonic()
        self.loop.call_later(self.BEAT_INTERVAL_S, self._beat)


def _log(exc: BaseException) -> None:
    log.error("a task or callback on the event loop raised %r; the loop goes on", exc, exc_info=exc)
