"""Publishers: through what an app publishes, and the `with` block that lets it outside a worker.

In a worker, and in a test's harness, it is what the worker has attached. In any other process it
is a publisher of the app's own, which is there while a block of `app.publishing()` is entered. The
attached one goes first, so that code that enters such a block publishes to the harness in a test.

A Kafka client does not live through a fork: its threads are not in the child, and a call would
wait for ever. So a child is refused what its parent has opened, may open its own, and leaves alone
what it has inherited: to free that would join threads that are not there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

from ackfloor.declare.encoders import Encoders
from ackfloor.ports import Publisher

Write = Callable[[], "Future[None]"]
#: (topic, what starts a write) -> a coroutine that starts it, and waits for its confirmation.
Confirmed = Callable[[str, Write], Coroutine[Any, Any, None]]


class Way(NamedTuple):
    """A way to Kafka: what writes records, and what encodes their values."""

    publisher: Publisher
    encoders: Encoders

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for what is not encoded or confirmed yet, then stop."""
        until_s = monotonic() + timeout_s
        self.encoders.close(timeout_s)
        self.publisher.close(max(0.0, until_s - monotonic()))


#: Opened before a fork, in whose child this is: kept, so that it is not freed.
_inherited: list[Way] = []


async def confirmed(_topic: str, write: Write) -> None:
    """Start a write and wait for its confirmation, on any event loop."""
    await asyncio.wrap_future(write())


class Publishers:
    """What one app publishes through.

    Args:
        open_own: opens a publisher of the app's own; connects to nothing yet.

    Attributes:
        confirmed: makes the coroutines that `App.publish` returns.
    """

    def __init__(self, open_own: Callable[[], Way]) -> None:
        self._open_own = open_own
        self._begin()

    def _begin(self) -> None:
        self.confirmed: Confirmed = confirmed
        self._attached: Way | None = None
        self._own: Way | None = None
        #: How many blocks are entered.
        self._entered = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @property
    def attached(self) -> bool:
        """Whether a worker, or a test's harness, is there in this process."""
        return self._attached is not None and self._pid == os.getpid()

    def attach(self, way: Way, confirmed: Confirmed) -> None:
        """Publish through a worker's publisher, because it starts."""
        self._begin_anew_in_a_child()
        self._attached, self.confirmed = way, confirmed

    def detach(self) -> None:
        """Stop publishing through a worker's publisher, because it has ended."""
        self._attached, self.confirmed = None, confirmed

    def current(self) -> Way:
        """What to publish through now.

        Raises:
            RuntimeError: there is nothing, and what to do.
        """
        found = self._attached or self._own
        if found is None and not self._entered:
            raise RuntimeError(
                "publish needs a running worker (call it from a handler or the lifespan), or a "
                "block around it: `with app.publishing():`, in a coroutine `async with`"
            )
        if self._pid != os.getpid():
            raise RuntimeError(
                "this process was forked after `app.publishing()` was entered or a worker was "
                "started, and a Kafka client does not live through that: enter `app.publishing()` "
                "in the new process, after the fork"
            )
        if found is None:
            raise RuntimeError(
                "the worker or harness that was published through has ended: enter "
                "`app.publishing()` again"
            )
        return found

    def enter(self) -> None:
        """A block is entered; raises ConfigError if a setting is refused."""
        self._begin_anew_in_a_child()
        with self._lock:
            if self._attached is None and self._own is None:
                self._own = self._open_own()
            self._entered += 1

    def leave(self) -> Way | None:
        """A block is left; returns what is to be closed, because it was the last."""
        with self._lock:
            self._entered -= 1
            closing = None
            if not self._entered:
                closing, self._own = self._own, None
        return closing

    def _begin_anew_in_a_child(self) -> None:
        if self._pid == os.getpid():
            return
        _inherited.extend(kept for kept in (self._attached, self._own) if kept is not None)
        # With another lock: whoever held the old one is not in this process.
        self._begin()


class Publishing:
    """The block in which an app publishes outside a worker; see `App.publishing`."""

    def __init__(self, publishers: Publishers, close_s: float) -> None:
        self._publishers = publishers
        self._close_s = close_s
        self._pid = 0

    def __enter__(self) -> Self:
        self._publishers.enter()
        self._pid = os.getpid()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        closing = self._leave()
        if closing is not None:
            closing.close(self._close_s)

    def _leave(self) -> Way | None:
        # A forked child leaves its parent's block as well.
        return self._publishers.leave() if self._pid == os.getpid() else None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        closing = self._leave()
        if closing is not None:
            # On a thread: who waits for a confirmation needs the event loop.
            await asyncio.to_thread(closing.close, self._close_s)
