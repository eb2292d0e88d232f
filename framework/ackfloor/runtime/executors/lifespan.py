"""The user's lifespan: one async context manager around everything a worker does.

It is entered and left in one task, because context managers built on task groups insist on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from ackfloor.runtime.executors.event_loop import EventLoop


class Lifespan:
    """Holds a lifespan open on the event loop's thread.

    Args:
        open_: opens it; None where there is none.
        thread: the event loop's thread.
        broke: called when it has ended without `exit`: a task group inside does
            that when one of its tasks fails. What it yielded is closed then.

    Attributes:
        state: what it yielded; None without one.
    """

    def __init__(
        self,
        open_: Callable[[], AbstractAsyncContextManager[object]] | None,
        thread: EventLoop,
        broke: Callable[[BaseException], None],
    ) -> None:
        self.state: object = None
        self._broke = broke
        self._open = open_
        self._thread = thread
        self._leave: asyncio.Event | None = None
        self._task: asyncio.Task[BaseException | None] | None = None

    def enter(self) -> object:
        """Enter it and return what it yields; what it raises is raised here."""
        if self._open is not None:
            raised = self._thread.run(self._enter())
            if raised is not None:
                raise raised
        return self.state

    def exit(self, timeout_s: float) -> None:
        """Leave it; what it raises on the way out is raised here."""
        if self._task is not None:
            raised = self._thread.run(self._exit(), timeout_s)
            if raised is not None:
                raise raised

    # What it raises is handed on and not raised on the event loop, which an exit would end.

    async def _enter(self) -> BaseException | None:
        entered: asyncio.Future[BaseException | None]
        entered = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._hold(entered, self._leave), name="ackfloor:lifespan")
        return await entered

    async def _hold(
        self, entered: asyncio.Future[BaseException | None], leave: asyncio.Event
    ) -> BaseException | None:
        """Be in it until told to leave; returns what it raised on the way out."""
        assert self._open is not None
        raised: BaseException | None = None
        try:
            async with self._open() as state:
                self.state = state
                entered.set_result(None)
                await leave.wait()
        except BaseException as exc:
            raised = exc
        if not entered.done():
            entered.set_result(raised)
        elif not leave.is_set():
            self._broke(raised or RuntimeError("the lifespan has ended by itself"))
        return raised

    async def _exit(self) -> BaseException | None:
        assert self._leave is not None
        assert self._task is not None
        self._leave.set()
        return await self._task
