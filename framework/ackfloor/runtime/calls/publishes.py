"""Publishes: what handlers publish with `App.publish`, until somebody has waited for its end.

A handler that forgets an `await` has published nothing when it returns, and one that starts a task
and does not wait for it doesn't know. Its record must not be settled as handled then. So each call
of `App.publish` inside a handler is kept until its coroutine has ended, and an executor whose
handler has returned looks here before it takes that for success:

* A call that was never begun is an error, `PublishNotAwaited`, that the record fails with. One that
  was given up before it began (a timeout of 0, a task cancelled at once, `close()`) is none:
  whoever gave it up knows.
* One that is under way is waited for, in the handler's time; if it fails, so does the record.
* One that has failed in a task whose result nobody has looked at fails the record as well.

A handler that publishes nothing pays for a look at an empty dict.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from inspect import CORO_CREATED, getcoroutinestate
from os.path import basename
from typing import Any

from ackfloor.core.records.batch import Batch
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.errors import PublishNotAwaited

#: What a call of a handler is about.
Handled = TrackedDelivery | Batch
Write = Callable[[], "Future[None]"]


class _Call:
    """One call of `App.publish` in a handler."""

    __slots__ = ("coroutine", "ended_in", "made_in", "place", "topic", "written")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        #: The user's line.
        self.place = ""
        self.made_in = _running_task()
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.written: Future[None] | None = None
        #: The task of its own that it has failed in: whoever has that may look at it, or not.
        self.ended_in: asyncio.Task[Any] | None = None

    @property
    def forgotten(self) -> bool:
        """Whether it was neither begun nor given up so far."""
        return self.coroutine is not None and getcoroutinestate(self.coroutine) == CORO_CREATED

    def not_awaited(self) -> PublishNotAwaited:
        """The error of a call that was never begun; it can't begin any more."""
        if self.coroutine is not None:
            self.coroutine.close()
        return PublishNotAwaited(
            f"app.publish({self.topic!r}, ...) in {self.place} was not awaited before the handler "
            "returned, so nothing was published: write `await app.publish(...)`, or in a `def` "
            "handler `app.publish_sync(...)`"
        )

    def unseen(self) -> BaseException | None:
        """What it failed with in a task whose result nobody has looked at."""
        # The flag by which asyncio itself says "exception was never retrieved".
        if self.ended_in is not None and getattr(self.ended_in, "_log_traceback", False):
            return self.ended_in.exception()
        return None


class Publishes:
    """The calls of `App.publish` in one worker's handlers that have not ended.

    Args:
        handled: what is being handled where it is called.

    Attributes:
        open: what is being handled -> its calls, in order.
    """

    def __init__(self, handled: Callable[[], Handled | None] = lambda: None) -> None:
        self.open: dict[Handled, dict[_Call, None]] = {}
        self._handled = handled
        self._lock = threading.Lock()

    def confirmed(self, topic: str, write: Write) -> Coroutine[Any, Any, None]:
        """A coroutine that writes a record and returns once that is confirmed.

        Called by `App.publish`, and by nobody else: its caller's line is the user's.
        """
        call, handled = _Call(topic), self._handled()
        coroutine = self._run(call, handled, write)
        if handled is not None:
            frame = sys._getframe(2)  # noqa: SLF001
            call.place = f"{basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119
            call.coroutine = coroutine
            with self._lock:
                self.open.setdefault(handled, {})[call] = None
        return coroutine

    async def _run(self, call: _Call, handled: Handled | None, write: Write) -> None:
        try:
            call.written = write()
            await asyncio.wrap_future(call.written)
        except BaseException:
            task = _running_task()
            if task is not call.made_in:
                call.ended_in = task
                raise
            self._over(call, handled)
            raise
        self._over(call, handled)

    def _over(self, call: _Call, handled: Handled | None) -> None:
        """A call has ended, and who called it was told how."""
        if handled is None:
            return
        with self._lock:
            calls = self.open.get(handled)
            if calls is not None:
                calls.pop(call, None)
                if not calls:
                    del self.open[handled]

    async def settle(self, handled: Handled) -> None:
        """Wait for what an `async def` handler that has returned has published.

        Raises:
            PublishNotAwaited: a call was never begun.
            PublishFailed: a record was not written, or it is not known whether it was.
        """
        if any(call.forgotten for call in self.open.get(handled, ())):
            # A task that the handler has started for it begins in the loop's next round.
            await asyncio.sleep(0)
        for written in self._under_way(handled):
            await asyncio.wrap_future(written)

    def settle_sync(self, handled: Handled) -> None:
        """`settle` for `def` handlers."""
        for written in self._under_way(handled):
            written.result()

    def _under_way(self, handled: Handled) -> list[Future[None]]:
        """Forget the calls of a handler that has returned; the writes that have not ended.

        Raises:
            PublishNotAwaited: a call was never begun.
            Exception: one has failed, and nobody has looked.
        """
        calls = self._taken(handled)
        forgotten = [call.not_awaited() for call in calls if call.forgotten]
        unseen = [exc for call in calls if (exc := call.unseen()) is not None]
        for exc in (*forgotten, *unseen):
            raise exc
        return [call.written for call in calls if call.written and call.ended_in is None]

    def drop(self, handled: Handled) -> None:
        """Forget the calls of a handler that has failed by itself."""
        if self.open:
            for call in self._taken(handled):
                # It would keep itself alive, and Python could not warn.
                call.coroutine = None

    def _taken(self, handled: Handled) -> list[_Call]:
        with self._lock:
            return list(self.open.pop(handled, ()))


def _running_task() -> asyncio.Task[Any] | None:
    """The task that runs here, if one does."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
