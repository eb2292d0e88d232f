"""ManualEventLoop: an asyncio loop on a manual clock, which knows when it is at rest.

`asyncio.sleep(60)` on it ends when the clock has been moved by 60 seconds, and not before.

How rest is known. An event loop asks its selector to wait only when no callback is ready. The
selector here, asked to wait, first looks whether anything has arrived; if not, the loop is at
rest, and it notes when its next timer is due and then waits for its wake-up pipe alone.

Why that is exact. `settle` puts a callback (the ping) at the end of the ready queue and waits
until the loop is at rest *after* the ping has run. Everything that the calling thread had
caused before is in the ready queue before the ping, so it has run to its next real wait.

Why a move of the clock is not missed. The loop publishes the due time and then looks at the
clock; whoever moves the clock moves it and then looks at the due time. One sees the other.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from math import inf
from typing import Any, TypeVar, TypeVarTuple

from ackfloor.testing.memory.manual_clock import LAST_S, ManualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: asyncio asks its selector for no longer wait than this, however far its next timer is.
_LONGEST_SELECT_S = 86_400


class _Selector(selectors.BaseSelector):
    """Waits for files as the real one does, and never for time."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        #: Called when the loop would wait: `rest(seconds or None) -> whether it may block`.
        self.rest: Callable[[float | None], bool] = lambda _: True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; blocks only for as long as the clock stands still."""
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0) or not self.rest(timeout):
            return ready
        return self._real.select(None)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As the real selector."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """As the real selector."""
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As the real selector."""
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As the real selector."""
        return self._real.get_map()

    def close(self) -> None:
        """As the real selector."""
        self._real.close()


class ManualEventLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a manual clock's.

    Args:
        clock: what tells the time. The loop follows it until it is closed.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        selector = _Selector()
        super().__init__(selector)
        selector.rest = self._rest
        self._files = selector
        #: Files it watches for itself (its wake-up pipe).
        self._own_files = len(selector.get_map())
        self._seen_s = 0.0
        self._owner = 0
        self._jobs = 0
        self._pinged = 0
        self._free_running = False
        self._at_rest = threading.Condition()
        self._rested = 0
        self._pings = 0
        #: Monotonic seconds of the next timer while at rest; infinity where there is none.
        self.due_s = inf
        clock.follow(self.catch_up)

    def time(self) -> float:
        """The manual clock's monotonic seconds."""
        now_s = self.clock.monotonic()
        if threading.get_ident() == self._owner:
            self._seen_s = now_s
        return now_s

    def run_forever(self) -> None:
        """Run until stopped."""
        self._owner = threading.get_ident()
        super().run_forever()

    def close(self) -> None:
        """Close the loop; it follows the clock no longer."""
        if not self.is_closed():
            self.clock.unfollow(self.catch_up)
        super().close()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As asyncio's, and counted: the loop waits for another thread meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        self._jobs -= 1

    def outside(self) -> int:
        """How many things in real time it waits for: files, sockets, jobs in threads."""
        return len(self._files.get_map()) - self._own_files + self._jobs

    # The loop's thread.

    def _rest(self, timeout_s: float | None) -> bool:
        """The loop would wait; returns whether it may block until it is woken."""
        # The loop worked its timeout out from the time it was last told.
        due_s = inf if timeout_s is None else self._seen_s + timeout_s
        with self._at_rest:
            if self._free_running and (timeout_s or inf) < _LONGEST_SELECT_S and due_s < LAST_S:
                self.clock.move_to(due_s)
                return False
            self.due_s = due_s
            if due_s <= self.clock.monotonic():
                return False
            self._rested = self._pinged
            self._at_rest.notify_all()
        return True

    # Other threads.

    def settle(self, timeout_s: float) -> bool:
        """Wait until the loop has done all it can at this time; False when it did not rest.

        Args:
            timeout_s: real seconds to wait at most.
        """
        if threading.get_ident() == self._owner or not self.is_running():
            return True
        with self._at_rest:
            self._pings += 1
            ping = self._pings
        self.call_soon_threadsafe(self._ping, ping)
        with self._at_rest:
            return self._at_rest.wait_for(lambda: self._rested >= ping, timeout_s)

    def _ping(self, number: int) -> None:
        self._pinged = number

    def catch_up(self) -> None:
        """The clock has moved: run what has become due."""
        self.settle(1.0)

    @contextmanager
    def free_running(self) -> Iterator[None]:
        """Meanwhile, timers don't wait for the clock: they move it. None does afterwards."""
        self._free_running = True
        self.call_soon_threadsafe(lambda: None)
        try:
            yield
        finally:
            with self._at_rest:
                self._free_running = False
