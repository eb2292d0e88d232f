"""MemoryWorker: one worker on the in-memory broker, from its start to its end or its crash."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from ackfloor.declare.registration import HandlerSpec
from ackfloor.runtime.executors.event_loop import EventLoopThread
from ackfloor.runtime.loop.loop import Loop
from ackfloor.runtime.loop.worker_assembly import Outside, Topology, Worker
from ackfloor.settings import Settings
from ackfloor.testing.kit.driver import Driver, Unsettled
from ackfloor.testing.kit.manual_event_loop import ManualEventLoop
from ackfloor.testing.kit.observations import (
    Observations,
    WatchedEngine,
    WatchedErrors,
    WatchedObserver,
)
from ackfloor.testing.kit.topology import TurnByTurn, worker_config
from ackfloor.testing.memory.manual_clock import ManualClock
from ackfloor.testing.memory.memory_broadcast import MemoryBroadcastSource
from ackfloor.testing.memory.memory_broker import MemoryBroker, MemoryPublisher
from ackfloor.testing.memory.memory_client import MemorySink, MemorySource
from ackfloor.testing.memory.memory_transactions import MemoryTransactionalSink

if TYPE_CHECKING:
    from ackfloor.app import App

T = TypeVar("T")

#: The worker's name in the headers of its dead letters (broadcast mode).
WORKER = "harness/worker-0"


class ManualEventLoopThread(EventLoopThread):
    """A manual event loop in a thread of its own.

    Args:
        clock: the loop's clock.
        observations: records exceptions that no coroutine can raise to a caller.
        give_up_s: most real seconds to wait for a coroutine.
    """

    # Its sign of life would be a timer to stop at, twice in every second of manual time.
    BEAT_INTERVAL_S = 1e8

    def __init__(self, clock: ManualClock, observations: Observations, give_up_s: float) -> None:
        self.manual = ManualEventLoop(clock)
        super().__init__(lambda: self.manual)
        self._observations = observations
        self._give_up_s = give_up_s
        self.manual.set_exception_handler(self._raised)

    def start(self) -> None:
        """Start the thread; the loop runs when this returns, so it does not count as at rest."""
        running = threading.Event()
        self.manual.call_soon(running.set)
        super().start()
        running.wait(self._give_up_s)

    def _raised(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exc = context.get("exception") or RuntimeError(context["message"])
        self._observations.raised("event loop", exc)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """As any event loop's thread; time passes as the coroutine needs it.

        Raises:
            Unsettled: it waits for something other than time.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.manual)
        with self.manual.free_running():
            try:
                return future.result(min(timeout_s or inf, self._give_up_s))
            except TimeoutError:
                if future.done():
                    raise
                future.cancel()
                name = getattr(coroutine, "__qualname__", "a coroutine")
                raise Unsettled(
                    f"{name} did not end: the lifespan or a handler blocks the "
                    "event loop, or waits for what never comes"
                ) from None

    def stop(self) -> None:
        """Cancel what is left, so that nothing is destroyed while it is pending."""
        if not self.manual.is_running():
            self.manual.close()
            return
        try:
            self.run(_cancel_all(), 1.0)
        except Unsettled as exc:
            self._observations.raised("event loop", exc)
        super().stop()


def _group_source(
    broker: MemoryBroker, settings: Settings, topology: Topology, from_start: Collection[str]
) -> MemorySource:
    return MemorySource(
        broker,
        settings.group,
        start=settings.app.start,
        quarantined_topics=topology.quarantined_topics(),
        from_start=from_start,
    )


async def _cancel_all() -> None:
    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=0.1)
    await asyncio.get_running_loop().shutdown_asyncgens()


class MemoryWorker:
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
        observations: Observations,
        give_up_s: float,
        from_start: Collection[str] = (),
    ) -> None:
        self.events = ManualEventLoopThread(clock, observations, give_up_s)
        self._source = (
            MemoryBroadcastSource(broker, settings.group)
            if app.broadcast
            else _group_source(broker, settings, topology, from_start)
        )
        transactional = settings.app.transactional
        self._sink = (
            MemoryTransactionalSink(broker, settings.group, create_topics=True)
            if transactional
            else MemorySink(broker)
        )
        self._publisher = MemoryPublisher(broker, create_topics=True)
        self._clock = clock
        self._on_threads = frozenset(spec.name for spec in handlers if not spec.is_async)
        self._observations = observations
        self.worker = Worker(
            app,
            handlers,
            worker_config(settings, worker=WORKER if app.broadcast else None),
            topology,
            Outside(self._source, self._sink, self._publisher, clock, self.events),
            [
                observations,
                *(WatchedObserver(observer, observations) for observer in app.observers),
            ],
            TurnByTurn(),
            partial(WatchedEngine, observations),
        )
        self.worker.inbox.errors = WatchedErrors(observations.raised_late)
        self.worker.inbox.broken = WatchedErrors(observations.broke)
        self.worker.inbox.strays = WatchedErrors(observations.strayed)
        try:
            self.loop: Loop = self.worker.start()
        except BaseException:
            self.close()
            raise

    def driver(self, *, grace_s: float, give_up_s: float) -> Driver:
        """What turns it; the caller's thread becomes the owner thread."""
        return Driver(
            self.loop,
            self._source,
            self.worker.inbox,
            self.events.manual,
            self._clock,
            self._observations.abandoned,
            self._on_threads,
            grace_s=grace_s,
            give_up_s=give_up_s,
        )

    def close(self) -> None:
        """Shut down cleanly; handlers that still run are cancelled, their records stay open."""
        # Time may pass for those that have ignored their cancellation, and only where no other
        # handler would take it for its own.
        passing = nullcontext() if self._handlers_run() else self.events.manual.free_running()
        with passing:
            self.worker.close(lambda: True)

    def _handlers_run(self) -> bool:
        open_ = chain.from_iterable(
            assignment.tracker.open.values()
            for assignment in self.worker.engine.assignments.values()
        )
        return not self.events.manual.is_running() or any(
            delivery.started_s and not delivery.closed for delivery in open_
        )

    def crash(self) -> None:
        """Crash, as the broker sees it: nothing is committed, parked or given up.

        Python's own clean-up (`finally`, the lifespan's exit) still runs, because the process
        goes on; what it raises is noted and not raised.
        """
        self._source.kill()
        self._sink.kill()
        self._publisher.close(0.0)
        self._observations.listening = False
        try:
            self.close()
        except Exception as exc:  # noqa: BLE001 -- the lifespan's exit is user code
            self._observations.raised("the crashed worker's clean-up", exc)
        finally:
            self._observations.listening = True
