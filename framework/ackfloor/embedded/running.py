"""Running: `async with app.running():`, one worker of the group inside the caller's program.

The worker has its own thread (`worker_thread`); async handlers are tasks on the caller's event
loop. That loop never waits for the worker, but for the two futures of its thread.

Entering returns as soon as the worker runs. Where no broker answers it returns as well, and the
worker joins later: a web service that starts while Kafka is away answers its requests, and says on
`/readyz` what it waits for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from ackfloor.control import PageAnswer, PageRequest
from ackfloor.core.values.durations import parse_duration
from ackfloor.core.values.setting_error import SettingError
from ackfloor.embedded.worker_thread import WorkerThread
from ackfloor.errors import ConfigError, WorkerFailed
from ackfloor.launch import Launch
from ackfloor.ports import PageMonitor, RunMonitor

if TYPE_CHECKING:
    from ackfloor.app import App

log = logging.getLogger("ackfloor.supervisor")

#: What a worker may need beyond its shutdown timeout: to cancel handlers, leave the group, and
#: close the lifespan and the publisher.
GRACE_S = 15.0


class Running:
    """The block of one `app.running()`; see there.

    Args:
        app: the app.
        name: the worker's name in its Kafka clients; None for one that has the process's id.
        restarts: how often a worker that fails is started again, without a steady run between.
        connect_timeout: how long entering waits for a broker; None not to wait.
    """

    def __init__(
        self,
        app: App,
        *,
        name: str | None,
        restarts: int,
        connect_timeout: timedelta | str | None,
    ) -> None:
        if name is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
            raise SettingError(
                "name", name, "expected 1 to 100 of A-Z a-z 0-9 . _ -", 'for example "web-1"'
            )
        if restarts < 0:
            raise SettingError("restarts", restarts, "must not be negative", "0 for none")
        self._app = app
        self._name = name
        self._restarts = restarts
        self._connect_timeout = (
            None
            if connect_timeout is None
            else timedelta(seconds=parse_duration(connect_timeout, field="connect_timeout"))
        )
        self._monitor: RunMonitor | None = None
        self._thread: WorkerThread | None = None
        self._shutdown_s = 0.0
        self._task: asyncio.Task[object] | None = None
        #: Cancellations of the task that it had before ours; None where we did not cancel it.
        self._cancelling: int | None = None
        self._leaving = False
        self._stack = AsyncExitStack()

    def page(self, request: PageRequest) -> PageAnswer | None:
        """The monitor's answer to a request; None where it has no pages."""
        monitor = self._monitor
        return monitor.page(request) if isinstance(monitor, PageMonitor) else None

    async def __aenter__(self) -> None:
        app = self._app
        if self._thread is not None:
            raise RuntimeError("this block was entered before: call app.running() for another one")
        if app.embedded is not None:
            raise RuntimeError(
                "this app is running in this process already: leave its running() block first, "
                "or give the other block an App of its own"
            )
        if app.attached:
            # A test's harness is the worker.
            return
        app.embedded = self
        try:
            await self._enter()
        except BaseException:
            # Cancelled, too: what has been opened is closed, and then the block is free again.
            try:
                await self._stack.aclose()
            finally:
                app.embedded = None
            raise

    async def _enter(self) -> None:
        launch = await asyncio.to_thread(self._prepared)
        self._shutdown_s = launch.settings.app.shutdown_timeout_s
        # The whole time, so that requests publish while no worker is there: before Kafka answers,
        # and in a restart.
        await self._stack.enter_async_context(self._app.publishing())
        self._thread = thread = WorkerThread(
            launch,
            self._name or f"running-{os.getpid()}",
            asyncio.get_running_loop(),
            self._monitor,
            restarts=self._restarts,
            connect_timeout=self._connect_timeout,
        )
        self._stack.push_async_callback(self._leave, thread)
        thread.start()
        await asyncio.shield(thread.entered)
        if thread.ended.done():
            self._raise(thread)
        self._task = asyncio.current_task()
        thread.ended.add_done_callback(self._on_ended)

    def _prepared(self) -> Launch:
        """Check everything that needs no broker; on a thread, because it reads and imports."""
        # What the block needs next is imported here, not on the event loop.
        from ackfloor.kafka.produce import publisher  # noqa: F401

        launch = Launch.of(self._app, flags={})
        app = launch.settings.app
        if self._name is None:
            for field, given in (
                ("app.static_membership", app.static_membership),
                ("app.parking", app.transactional and app.parking),
            ):
                if given:
                    raise ConfigError(
                        field, given, "its worker needs a name that the next process takes over",
                        'say app.running(name="web-1"), and another name in each process of a host',
                    )  # fmt: skip
        if app.workers > 1:
            log.warning(
                "app.workers = %d is for `ackfloor run`: running() has one worker in each process",
                app.workers,
            )
        launch.check_handlers()
        plugin = launch.monitoring()
        if plugin is not None:
            self._monitor = plugin.run_monitor(launch.settings.group, 1)
        return launch

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread = self._thread
        if thread is None:
            return
        cancelled_here = self._takes_back_its_cancellation()
        try:
            await self._stack.aclose()
        finally:
            self._app.embedded = None
        if exc is None or (cancelled_here and isinstance(exc, asyncio.CancelledError)):
            self._raise(thread)

    @staticmethod
    def _raise(thread: WorkerThread) -> None:
        """Raise what the worker was given up for, if it was."""
        error = thread.ended.result()
        if error is not None:
            raise error from error.__cause__

    def _on_ended(self, ended: asyncio.Future[BaseException | None]) -> None:
        """The worker was given up: cancel the body."""
        if not self._leaving and ended.result() is not None and self._task is not None:
            self._cancelling = self._task.cancelling()
            self._task.cancel()

    def _takes_back_its_cancellation(self) -> bool:
        """Whether nobody but this block has cancelled its task."""
        if self._cancelling is None or self._task is None:
            return False
        return self._task.uncancel() <= self._cancelling

    async def _leave(self, thread: WorkerThread) -> None:
        """Have the worker drain and leave the group; a cancellation meanwhile stops it now."""
        self._leaving = True
        thread.stop()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._shutdown_s + GRACE_S
        cancelled: asyncio.CancelledError | None = None
        while not thread.ended.done() and loop.time() < until_s:
            try:
                await asyncio.wait([thread.ended], timeout=until_s - loop.time())
            except asyncio.CancelledError as exc:
                cancelled = exc
                thread.stop()
        if not thread.ended.done():
            raise WorkerFailed(
                f"the worker has not ended {self._shutdown_s + GRACE_S:g} s after it was asked to"
            )
        if cancelled is not None:
            raise cancelled
