"""`app.running()` on a real broker: a worker inside a program that has an event loop of its own."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from ackfloor import App, ConfigError, RetryPolicy, StartError, WorkerFailed
from ackfloor.observe import DeliveryTimedOut, Event, RecordDeadLettered, Snapshot
from ackfloor.runtime.supervision import restarts
from ackfloor.testing import Harness
from tests.framework.embedded.asgi_client import asked
from tests.framework.kafka.wire import fresh, make_topic, produce, stored

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

PATIENCE_S = 120.0


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """A topic of two partitions."""
    return make_topic(bootstrap_servers, 2)


def app_on(servers: str, **options: Any) -> App:
    """An app with a group of its own."""
    return App(fresh("web"), kafka={"bootstrap_servers": servers}, start="earliest", **options)


async def until(done: Callable[[], object]) -> None:
    """Wait, without holding the event loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not done():  # noqa: ASYNC110 -- it asks a client, or what threads write
            await asyncio.sleep(0.01)


def members(servers: str, group: str) -> int:
    """How many members the group has."""
    admin = AdminClient({"bootstrap.servers": servers})
    return len(admin.describe_consumer_groups([group])[group].result().members)


def process() -> dict[str, object]:
    """What a worker's process sets of itself, and what is left of it."""
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "gc": (gc.get_threshold(), gc.isenabled()),
        "log": (
            logging.root.level,
            list(logging.root.handlers),
            logging.getLogger("ackfloor").level,
        ),
        "ports": {c.laddr for c in psutil.Process().net_connections() if c.status == "LISTEN"},
    }


async def test_handlers_run_where_their_kind_runs(bootstrap_servers: str, topic: str) -> None:
    """Async ones on the caller's loop, where its own queue works; `def` ones on other threads."""
    app, other = app_on(bootstrap_servers), make_topic(bootstrap_servers)
    queue: asyncio.Queue[bytes] = asyncio.Queue(1)
    loops, threads = set(), set()

    @app.handler(topic)
    async def pooled(value: bytes) -> None:
        loops.add(asyncio.get_running_loop())
        await queue.put(value)

    @app.handler(other)
    def plain(value: bytes) -> None:
        threads.add(threading.current_thread())

    before, frozen = process(), gc.get_freeze_count()
    produce(bootstrap_servers, topic, 20)
    produce(bootstrap_servers, other, 1)
    async with app.running():
        during = process()
        async with asyncio.timeout(PATIENCE_S):
            got = [await queue.get() for _ in range(20)]
        await until(lambda: threads)
    assert len(got) == 20
    assert loops == {asyncio.get_running_loop()}
    assert threading.main_thread() not in threads
    assert during == before == process()
    assert gc.get_freeze_count() <= frozen, "what was frozen before dies in its own time"
    assert stored(bootstrap_servers, app.group, topic).offset == 20
    assert members(bootstrap_servers, app.group) == 0


async def test_leaving_lets_what_runs_end(bootstrap_servers: str, topic: str) -> None:
    """It is settled, what has not begun stays; the loop does other things meanwhile."""
    app = app_on(bootstrap_servers)
    begun, ticks = asyncio.Event(), 0
    ended = []

    @app.handler(topic, concurrency=1)
    async def slow(value: bytes) -> None:
        begun.set()
        await asyncio.sleep(0.5)
        ended.append(value)

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    produce(bootstrap_servers, topic, 2)
    async with app.running():
        await begun.wait()
        ticking = asyncio.create_task(tick())
    ticking.cancel()
    assert len(ended) == 1
    assert ticks >= 20
    assert stored(bootstrap_servers, app.group, topic).offset == 1


async def test_a_cancellation_of_the_drain_stops_now(bootstrap_servers: str, topic: str) -> None:
    """What runs is cancelled and stays open; the caller's cancellation goes on its way."""
    app = app_on(bootstrap_servers, shutdown_timeout="10m")
    begun, leaving = asyncio.Event(), asyncio.Event()
    cancelled = []

    @app.handler(topic)
    async def endless(value: bytes) -> None:
        begun.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.append(value)
            raise

    async def program() -> None:
        async with app.running():
            await begun.wait()
            leaving.set()

    produce(bootstrap_servers, topic, 1)
    task = asyncio.create_task(program())
    await leaving.wait()
    await asyncio.sleep(0.3)
    assert not task.done()
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(cancelled) == 1
    assert stored(bootstrap_servers, app.group, topic).offset < 1
    assert members(bootstrap_servers, app.group) == 0


def breaking(breaks: asyncio.Event, times: int) -> Any:
    """A lifespan that fails so often while it is open, when it is told to."""
    left = times

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        async def part() -> None:
            nonlocal left
            await breaks.wait()
            if left:
                left -= 1
                raise LookupError("the pool is gone")
            await asyncio.sleep(3_600)

        async with asyncio.TaskGroup() as group:
            working = group.create_task(part())
            yield
            working.cancel()

    return lifespan


async def test_a_worker_that_fails_is_started_again(bootstrap_servers: str, topic: str) -> None:
    """The body goes on, and may publish all the time."""
    breaks = asyncio.Event()
    app = app_on(bootstrap_servers, lifespan=breaking(breaks, 2))
    handled = []

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        handled.append(value)

    async with app.running():
        breaks.set()
        for number in range(50):
            await app.publish(topic, str(number))
            await asyncio.sleep(0.05)
        await until(lambda: len(set(handled)) == 50)


async def test_a_worker_that_is_given_up_ends_the_body(
    bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body is cancelled, and the block raises what the worker failed with."""
    monkeypatch.setattr(restarts, "FIRST_BACKOFF_S", 0.05)
    breaks, ended = asyncio.Event(), False
    app = app_on(bootstrap_servers, lifespan=breaking(breaks, 3))

    @app.handler(topic)
    async def handle(value: bytes) -> None: ...

    async def program() -> None:
        nonlocal ended
        async with app.running(restarts=2):
            breaks.set()
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                ended = True

    task = asyncio.create_task(program())
    with pytest.raises(WorkerFailed, match="has failed 3 times, at last with: ") as raised:
        await task
    assert ended
    assert isinstance(raised.value.__cause__, ExceptionGroup)
    assert task.cancelling() == 0
    assert app.embedded is None


class Watch:
    """Writes down what timed out, and what became dead letters."""

    def __init__(self) -> None:
        self.timed_out: list[str] = []
        self.dead: list[str] = []

    def observe(self, events: Sequence[Event]) -> None:
        """Events of the last turn."""
        for event in events:
            if isinstance(event, DeliveryTimedOut):
                self.timed_out.append(event.handler)
            if isinstance(event, RecordDeadLettered):
                self.dead.append(event.topic)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Nothing is read here."""


def stuck(value: bytes) -> None:
    """Never returns, in its own process."""
    threading.Event().wait()


async def test_a_process_handler_is_killed_here_too(bootstrap_servers: str, topic: str) -> None:
    """At its deadline; its process imports this module, and runs none of its programs."""
    watch = Watch()
    app = app_on(bootstrap_servers, observers=[watch])
    app.handler(
        topic,
        executor="process",
        consume_timeout="500ms",
        retry=RetryPolicy(max_redeliveries=0),
    )(stuck)

    produce(bootstrap_servers, topic, 1)
    async with app.running():
        await until(lambda: watch.dead)
    assert watch.timed_out == [stuck.__name__]


async def test_what_cannot_start_is_raised_where_it_is_entered(
    bootstrap_servers: str, topic: str
) -> None:
    """A topic that is missing, a lifespan that fails; and the block can be entered again."""
    missing = app_on(bootstrap_servers)

    @missing.handler(fresh("nowhere"))
    async def nobody(value: bytes) -> None: ...

    with pytest.raises(ConfigError, match="nowhere"):
        async with missing.running():
            pytest.fail("it was entered")

    fails = [True]

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        if fails.pop():
            raise LookupError("no database")
        yield

    app = app_on(bootstrap_servers, lifespan=lifespan)

    @app.handler(topic)
    async def handle(value: bytes) -> None: ...

    with pytest.raises(StartError, match="no database"):
        async with app.running():
            pytest.fail("it was entered")
    fails.append(False)
    async with app.running():
        assert app.attached


async def test_apps_in_one_process_do_not_meet(bootstrap_servers: str, topic: str) -> None:
    """Two that run, with pages of their own, and a third in a harness; one twice is refused."""
    first, second = app_on(bootstrap_servers), app_on(bootstrap_servers)
    third = App("third")
    handled: dict[str, list[bytes]] = {"first": [], "second": [], "third": []}

    @first.handler(topic)
    async def one(value: bytes) -> None:
        handled["first"].append(value)
        await second.publish(topic, b"from one") if value != b"from one" else None

    @second.handler(topic)
    async def two(value: bytes) -> None:
        handled["second"].append(value)

    @third.handler("third")
    async def three(value: bytes) -> None:
        handled["third"].append(value)

    produce(bootstrap_servers, topic, 1)
    # The first publishes through the second, which has to run by then.
    async with second.running(), first.running():
        with pytest.raises(RuntimeError, match="running in this process already"):
            async with first.running():
                pytest.fail("it was entered")
        await until(lambda: len(handled["first"]) == len(handled["second"]) == 2)
        states = [json.loads((await asked(app, "/state"))[2]) for app in (first, second)]
        assert [state["group"] for state in states] == [first.group, second.group]

        def in_a_harness() -> None:
            with Harness(third) as harness:
                harness.send("third", b"3")

        await asyncio.to_thread(in_a_harness)
    assert handled["third"] == [b"3"]
    assert stored(bootstrap_servers, first.group, topic).offset >= 1
