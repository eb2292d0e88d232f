"""SimEventLoop: an asyncio loop that the hub runs, one for each worker.

In production it has a thread of its own. Here a run of its ready callbacks is an event like any
other, a short while after the first of them became ready. How many run in one go is for the seed to
say: all that there is, or one round, so that the owner thread may come in between.
"""

from __future__ import annotations

import asyncio
from asyncio import events as asyncio_events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ackfloor.runtime.executors.event_loop import EventLoopThread
from tests.simulation.hub import Event, Hub, Killed

T = TypeVar("T")

#: Callbacks of one round after which a loop is taken to keep itself busy for ever.
MOST_ROUNDS = 10_000


class SimEventLoop(asyncio.AbstractEventLoop):
    """The loop of one worker.

    Args:
        hub: whose time it lives in.
        alive: whether its process is.
        thaws_s: until when its process stands still.
        raised: is given what no coroutine could raise to anybody.
    """

    def __init__(
        self,
        hub: Hub,
        alive: Callable[[], bool],
        thaws_s: Callable[[], float],
        raised: Callable[[dict[str, Any]], None],
    ) -> None:
        self._hub = hub
        self._alive = alive
        self._thaws_s = thaws_s
        self._raised = raised
        self._ready: deque[asyncio.Handle] = deque()
        self._run_event: Event | None = None
        #: In the order of their making: asyncio keeps them in a set, whose order is no seed's.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._hub.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._alive()

    def is_closed(self) -> bool:
        return not self._alive()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def cancel_all(self) -> None:
        """Cancel every task that has not ended."""
        for task in list(self._tasks):
            task.cancel()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._raised(context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._hub.at(when, lambda: self._add(timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""

    # Running.

    def _add(self, handle: asyncio.Handle) -> None:
        if handle.cancelled() or not self._alive():
            return
        self._ready.append(handle)
        if self._run_event is None:
            self._schedule()

    def _schedule(self) -> None:
        dice = self._hub.random
        self._run_event = self._hub.after(dice.random() * 0.0004, self._run)

    def _run(self) -> None:
        self._run_event = None
        if not self._alive():
            return
        thaws_s = self._thaws_s()
        if thaws_s > self._hub.now_s:
            self._run_event = self._hub.at(thaws_s, self._run)
            return
        rounds = 1 if self._hub.random.random() < 0.5 else MOST_ROUNDS
        # No event is due while it runs: what it adds to itself is for the rounds to come.
        self._run_event = _BUSY
        asyncio_events._set_running_loop(self)
        try:
            while self._ready and rounds > 0:
                rounds -= 1
                self._round()
        finally:
            asyncio_events._set_running_loop(None)
            self._run_event = None
        if self._ready and self._alive():
            self._schedule()

    def _round(self) -> None:
        for _ in range(len(self._ready)):
            if not self._ready:
                # The process has died in the callback before.
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                try:
                    handle._run()  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt) as exc:
                    # asyncio lets these out; the real loop's thread goes on after them.
                    self._raised({"message": "let out of the event loop", "exception": exc})

    def die(self) -> None:
        """The process is dead: nothing more runs."""
        self._ready.clear()

    def drop(self) -> None:
        """The run is over: whatever has not ended is thrown away here, and not by the collector."""
        for task in list(self._tasks):
            task._log_destroy_pending = False
            task.get_coro().close()
        self._tasks.clear()


_BUSY = Event(0.0, lambda: None)


class SimFuture(Future[T]):
    """What a coroutine gives, for a strand to wait for."""

    def __init__(self, hub: Hub, task: asyncio.Task[T]) -> None:
        super().__init__()
        self._hub = hub
        self._task = task
        task.add_done_callback(self._wake)
        self._strand = hub.strand

    def _wake(self, _: object) -> None:
        if self._strand is not None:
            self._strand.poke()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it in simulated time."""
        until_s = self._hub.now_s + (timeout if timeout is not None else 3_600.0)
        while not self._task.done():
            if self._hub.now_s >= until_s:
                raise TimeoutError
            self._strand = self._hub.strand
            self._hub.pause(until_s - self._hub.now_s, wakeable=True)
        if self._task.cancelled():
            raise TimeoutError("it was cancelled")
        return self._task.result()

    def cancel(self) -> bool:
        """Cancel the coroutine."""
        return self._task.cancel()


class SimEvents(EventLoopThread):
    """Stands in for the event loop's thread of one worker."""

    def __init__(self, hub: Hub, loop: SimEventLoop) -> None:
        super().__init__(lambda: loop)
        self._hub = hub
        self._sim_loop = loop

    def start(self) -> None:
        """It runs when there is something to run."""

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop; the future waits in simulated time."""
        if self._sim_loop.is_closed():
            coroutine.close()
            raise Killed
        task: asyncio.Task[T] = self._sim_loop.create_task(coroutine)
        return SimFuture(self._hub, task)

    def stop(self) -> None:
        """Cancel what is left, so that nothing is destroyed while it is pending."""
        self._sim_loop.cancel_all()
        try:
            self._hub.pause(0.01)
        except Killed:
            return
        self._sim_loop.die()

    def silence_s(self) -> float:
        """A loop of the simulation is never blocked."""
        return 0.0
