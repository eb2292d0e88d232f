"""The manual clock, and the event loop that lives on it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from ackfloor.core.records.record import Now
from ackfloor.core.values.setting_error import SettingError
from ackfloor.testing import ManualClock, ManualEventLoop
from ackfloor.testing.memory.manual_clock import EPOCH, LAST_S


def test_the_clock_stands_still() -> None:
    """Both clocks say the same until they are moved, and then differ by the same."""
    clock = ManualClock()
    before = clock.now()
    assert clock.now() == before
    assert clock.utc == EPOCH
    clock.advance("1m30s")
    clock.advance(timedelta(milliseconds=500))
    assert clock.now() == Now(before.mono_s + 90.5, before.wall_ms + 90_500)
    assert clock.monotonic() == before.mono_s + 90.5


def test_the_wall_clock_starts_where_it_is_told() -> None:
    """A start time is kept to the millisecond."""
    start = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert ManualClock(start).utc == start


def test_time_needs_a_unit_and_never_goes_back() -> None:
    """A bare number is refused, and a time that has passed changes nothing."""
    clock = ManualClock()
    with pytest.raises(SettingError, match="no unit"):
        clock.advance(30)  # type: ignore[arg-type]
    now = clock.now()
    clock.move_to(now.mono_s - 5)
    assert clock.now() == now
    with pytest.raises(ValueError, match="a manual clock runs for"):
        clock.move_to(LAST_S + 1)


def test_sums_of_fractions_are_reached() -> None:
    """A due time that was added up in floats has come when the clock was moved to it."""
    clock = ManualClock()
    due_s = clock.monotonic()
    for _ in range(1000):
        due_s += 0.1
        clock.move_to(due_s)
        assert clock.monotonic() >= due_s


def test_followers_are_told_of_each_move() -> None:
    """They are called by advance, sleep and notify, not by move_to, until they leave."""
    clock, told = ManualClock(), []

    def follower() -> None:
        told.append(clock.monotonic())

    clock.follow(follower)
    clock.advance("1s")
    clock.sleep(1)
    clock.move_to(2000)
    clock.notify()
    clock.unfollow(follower)
    clock.advance("1s")
    assert told == [1001, 1002, 2000]


class Running:
    """A manual event loop in a thread."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = ManualEventLoop(self.clock)
        self.done: list[str] = []
        self._thread = threading.Thread(target=self.loop.run_forever)
        started = threading.Event()
        self.loop.call_soon(started.set)
        self._thread.start()
        assert started.wait(60)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine and let it come as far as it can."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        assert self.loop.settle(60)

    async def sleep(self, name: str, seconds: float) -> None:
        """Sleep, then note it."""
        await asyncio.sleep(seconds)
        self.done.append(name)

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    """A running manual event loop."""
    running = Running()
    yield running
    running.stop()


def test_a_sleep_ends_when_the_clock_says_so(running: Running) -> None:
    """`asyncio.sleep(60)` ends at 60 s of manual time and not a moment before."""
    running.spawn(running.sleep("a", 60))
    assert running.loop.due_s == running.clock.monotonic() + 60
    running.clock.advance("59999ms")
    assert running.done == []
    running.clock.advance("1ms")
    assert running.done == ["a"]
    assert running.loop.due_s == inf


def test_timers_fire_in_due_order(running: Running) -> None:
    """A jump past several timers runs them in the order in which they were due."""
    for name, seconds in (("c", 3), ("a", 1), ("b", 2)):
        running.spawn(running.sleep(name, seconds))
    running.clock.advance("1h")
    assert running.done == ["a", "b", "c"]


def test_a_timeout_is_manual_time_too(running: Running) -> None:
    """`asyncio.timeout` and `wait_for` end with the clock, days away if need be."""

    async def wait() -> None:
        try:
            async with asyncio.timeout(2 * 86_400):
                await asyncio.Event().wait()
        except TimeoutError:
            running.done.append("timeout")

    running.spawn(wait())
    for _ in range(3):
        running.clock.advance("20h")
    assert running.done == ["timeout"]


def test_settle_waits_for_work_that_begets_work(running: Running) -> None:
    """All that can run without time passing has run when settle returns."""

    async def chain(left: int) -> None:
        await asyncio.sleep(0)
        if left:
            asyncio.create_task(chain(left - 1))  # noqa: RUF006 -- the chain holds it
        else:
            running.done.append("end")

    running.spawn(chain(1000))
    assert running.done == ["end"]


def test_settle_gives_up_on_a_loop_that_never_rests(running: Running) -> None:
    """A coroutine that spins is told by False, within the time that was given."""
    stop = threading.Event()

    async def spin() -> None:
        while not stop.is_set():  # noqa: ASYNC110 -- never resting is the point
            await asyncio.sleep(0)

    asyncio.run_coroutine_threadsafe(spin(), running.loop)
    assert not running.loop.settle(0.05)
    stop.set()
    assert running.loop.settle(60)


def test_what_waits_for_the_real_world_is_counted(running: Running) -> None:
    """A job in a thread and a watched socket are outside; timers are not."""
    let_go = threading.Event()
    near, far = socket.socketpair()
    near.setblocking(False)

    async def read() -> None:
        running.done.append((await running.loop.sock_recv(near, 10)).decode())

    async def job() -> None:
        await asyncio.to_thread(let_go.wait)
        running.done.append("job")

    running.spawn(running.sleep("timer", 5))
    assert running.loop.outside() == 0
    running.spawn(job())
    assert running.loop.outside() == 1
    running.spawn(read())
    assert running.loop.outside() == 2
    with near, far:
        far.send(b"hello")
        let_go.set()
        while running.loop.outside():
            running.loop.settle(60)
    running.loop.settle(60)
    assert sorted(running.done) == ["hello", "job"]


def test_a_move_inside_the_loop_does_not_wait_for_itself(running: Running) -> None:
    """A coroutine may move the clock; its own timers follow."""

    async def move() -> None:
        running.clock.advance("10s")

    running.spawn(running.sleep("a", 10))
    running.spawn(move())
    assert running.loop.settle(60)
    assert running.done == ["a"]


def test_a_free_running_loop_moves_the_clock(running: Running) -> None:
    """Where nobody else could move it (a lifespan's start and end), timers end at once."""
    running.spawn(running.sleep("a", 3600))
    with running.loop.free_running():
        asyncio.run_coroutine_threadsafe(running.sleep("b", 7200), running.loop).result(60)
    assert running.done == ["a", "b"]
    now_s = running.clock.monotonic()
    assert now_s >= 1000 + 7200
    running.spawn(running.sleep("c", 1))
    assert running.clock.monotonic() == now_s
    running.clock.advance("1s")
    assert running.done == ["a", "b", "c"]


def test_a_closed_loop_follows_no_longer() -> None:
    """Moving the clock after the loop has ended is nothing to it, and closing twice is fine."""
    running = Running()
    running.stop()
    running.clock.advance("1s")
    assert running.loop.settle(1)
    running.loop.close()
