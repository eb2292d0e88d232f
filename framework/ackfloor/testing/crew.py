"""Crew: one worker on the in-memory broker, from its start to its end or its crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ackfloor.registration import HandlerSpec
from ackfloor.runtime.event_loop import EventLoopThread
from ackfloor.runtime.loop import Loop
from ackfloor.runtime.worker import Outside, Topology, Worker
from ackfloor.settings import Settings
from ackfloor.testing.clock import ManualClock
from ackfloor.testing.event_loop import ManualEventLoop
from ackfloor.testing.memory import MemoryBroker, MemoryPublisher
from ackfloor.testing.memory_client import MemorySink, MemorySource
from ackfloor.testing.topology import TurnByTurn, worker_config
from ackfloor.testing.witness import WatchedEngine, WatchedErrors, WatchedObserver, Witness

if TYPE_CHECKING:
    from ackfloor.app import App


class ManualEventLoopThread(EventLoopThread):
    """A manual event loop in a thread of its own."""

    # Its sign of life would be a timer to stop at, twice in every second of manual time.
    BEAT_INTERVAL_S = 1e8

    def __init__(self, clock: ManualClock, witness: Witness) -> None:
        self.manual = ManualEventLoop(clock)
        super().__init__(lambda: self.manual)
        self._witness = witness
        self.manual.set_exception_handler(self._raised)

    def _raised(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exc = context.get("exception") or RuntimeError(context["message"])
        self._witness.raised("event loop", exc)

    def stop(self) -> None:
        """Cancel what is left, so that nothing is destroyed while it is pending."""
        if self.manual.is_running():
            try:
                self.run(_cancel_all(), 1.0)
            except TimeoutError:
                self._witness.raised("event loop", TimeoutError("blocked by a handler"))
            super().stop()
        else:
            self.manual.close()


async def _cancel_all() -> None:
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=0.1)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Crew:
    """A worker with everything it runs on.

    Attributes:
        loop: the owner loop.
        events: the event loop's thread.
        worker: the worker itself.
    """

    def __init__(
        self,
        app: App,
        handlers: Sequence[HandlerSpec],
        settings: Settings,
        topology: Topology,
        broker: MemoryBroker,
        clock: ManualClock,
        witness: Witness,
    ) -> None:
        self.events = ManualEventLoopThread(clock, witness)
        self._source = MemorySource(broker, settings.group, start=settings.app.start)
        self._sink = MemorySink(broker)
        self._publisher = MemoryPublisher(broker, create_topics=True)
        self._witness = witness
        self.worker = Worker(
            app,
            handlers,
            worker_config(settings),
            topology,
            Outside(self._source, self._sink, self._publisher, clock, self.events),
            [witness, *(WatchedObserver(observer, witness) for observer in app.observers)],
            TurnByTurn(),
            partial(WatchedEngine, witness),
        )
        self.worker.inbox.errors = WatchedErrors(witness)
        try:
            self.loop: Loop = self.worker.start()
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End in order; handlers that still run are cut short, their records stay open."""
        self._end()

    def crash(self) -> None:
        """Be gone as far as the broker knows: nothing is committed, parked or given up.

        Python's own clean-up (`finally`, the lifespan's exit) still runs, because the process
        goes on; what it raises is noted and not raised.
        """
        self._source.kill()
        self._sink.kill()
        self._publisher.close(0.0)
        try:
            self._end()
        except Exception as exc:  # noqa: BLE001 -- the lifespan's exit is user code
            self._witness.raised("the crashed worker's clean-up", exc)

    def _end(self) -> None:
        if self.events.manual.is_running():
            self.events.manual.free_run()
        self.worker.close(lambda: True)
