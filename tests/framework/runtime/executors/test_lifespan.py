"""Lifespan, middleware and publish: what surrounds handlers in a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest
from pydantic import BaseModel, model_serializer

from ackfloor import App, ConfigError, Delivery, PublishFailed, RetryPolicy
from tests.contracts.executor_contract import EXITS
from tests.framework.runtime.live import KINDS, Gate, live, register, within

EITHER = pytest.mark.parametrize("kind", KINDS)


class Database:
    """What a lifespan yields."""

    def __init__(self) -> None:
        self.open = True
        self.rows: list[bytes | None] = []


# Lifespan.


def test_it_is_entered_and_left_in_one_task_around_everything() -> None:
    """A task group inside insists on it; what it yields goes to parameters of its type."""
    tasks: list[object] = []
    database = Database()

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[Database]:
        async with asyncio.TaskGroup() as group:
            tasks.append(asyncio.current_task())
            background = group.create_task(asyncio.Event().wait())
            yield database
            background.cancel()
            tasks.append(asyncio.current_task())
        database.open = False

    app = App("g", lifespan=lifespan)

    @app.handler("orders")
    async def bill(value: bytes, db: Database) -> None:
        assert db.open
        db.rows.append(value)

    @app.handler("calls")
    def note(db: Database, delivery: Delivery) -> None:
        assert db.open
        db.rows.append(delivery.value)

    with live(app) as worker:
        assert database.open
        worker.send("orders", b"a")
        worker.send("calls", b"b")
        worker.until(worker.settled)
        assert database.open
        worker.close()
    assert not database.open
    assert sorted(database.rows, key=bytes) == [b"a", b"b"]
    assert tasks[0] is tasks[1]


def test_an_error_at_the_start_is_raised_and_nothing_is_left() -> None:
    """The user's own exception, before anything was subscribed."""

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        raise ConnectionRefusedError("database away")
        yield

    app, before = App("g", lifespan=lifespan), set(threading.enumerate())
    register(app, "thread", "orders", lambda d: iter(()))
    with pytest.raises(ConnectionRefusedError, match="database away"), live(app):
        pass
    within(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("end", [ConnectionResetError("database away"), None], ids=repr)
def test_one_that_ends_unasked_has_the_worker_replaced(end: Exception | None) -> None:
    """A task of its own has failed, or it swallows that: what it yielded is closed either way."""
    fails = threading.Event()

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        async def fail() -> None:
            while not fails.is_set():  # noqa: ASYNC110 -- another thread sets it
                await asyncio.sleep(0.001)
            raise end or ConnectionResetError

        with suppress(*([] if end else [ExceptionGroup])):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                yield

    app = App("g", lifespan=lifespan)
    register(app, "async", "orders", lambda _: iter(()))
    with live(app) as worker:
        worker.send("orders")
        worker.until(worker.settled)
        assert not worker.worker.inbox.broken
        fails.set()
        worker.until(lambda: worker.worker.inbox.broken)
        [broken] = worker.worker.inbox.broken
        if end is None:
            assert "ended by itself" in str(broken)
            assert worker.close() == 0
            return
        assert isinstance(broken, ExceptionGroup)
        assert broken.exceptions == (end,)
        with pytest.raises(ExceptionGroup):
            worker.close()


@pytest.mark.parametrize("end", [*EXITS, StopIteration()], ids=repr)
def test_one_that_exits_before_it_is_entered_does_not_hang(end: BaseException) -> None:
    """Also where it is only called: a future can't carry a StopIteration."""

    def lifespan(_: App) -> AbstractAsyncContextManager[None]:
        raise end

    app = App("g", lifespan=lifespan)
    register(app, "async", "orders", lambda d: iter(()))
    # Python itself lets no generator raise a StopIteration, and `live` is one.
    with pytest.raises((type(end), RuntimeError)), live(app):
        pass


@pytest.mark.parametrize("end", EXITS, ids=repr)
def test_one_that_exits_at_the_end_is_told_after_everything_is_closed(
    end: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It is raised where the worker ends, and does not go through the event loop."""

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        yield
        raise end

    app, before = App("g", lifespan=lifespan), set(threading.enumerate())
    register(app, "thread", "orders", lambda d: iter(()))
    with live(app) as worker:
        worker.send("orders", n=3)
        worker.until(worker.settled)
        with pytest.raises(type(end)):
            worker.close()
        found = worker.broker.committed("g", "orders")
    assert found is not None
    assert found.position == 3
    assert not worker.worker.inbox.strays
    within(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("end", EXITS, ids=repr)
def test_one_that_exits_at_the_start_does_not_hang(end: BaseException) -> None:
    """asyncio's loop would be gone and the start would wait for ever."""

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        raise end
        yield

    app = App("g", lifespan=lifespan)
    register(app, "async", "orders", lambda d: iter(()))
    with pytest.raises(type(end)), live(app):
        pass


def test_an_error_at_the_end_is_raised_after_everything_is_closed() -> None:
    """Floors are committed, threads have ended; then the exception comes out."""

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        yield
        raise OSError("flush failed")

    app, before = App("g", lifespan=lifespan), set(threading.enumerate())
    register(app, "thread", "orders", lambda d: iter(()))
    with live(app) as worker:
        worker.send("orders", n=3)
        worker.until(worker.settled)
        with pytest.raises(OSError, match="flush failed"):
            worker.close()
        found = worker.broker.committed("g", "orders")
    assert found is not None
    assert found.position == 3
    within(lambda: set(threading.enumerate()) <= before)


def test_it_is_left_also_when_the_source_fails_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clean-up does not depend on Kafka's."""
    left = []

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        yield
        left.append(True)

    app = App("g", lifespan=lifespan)
    register(app, "async", "orders", lambda d: iter(()))
    with live(app) as worker:

        def fail() -> None:
            raise OSError("broker away")

        monkeypatch.setattr(worker.loop._source, "close", fail)
        with pytest.raises(OSError, match="broker away"):
            worker.close()
    assert left == [True]


# Middleware.


def test_middleware_runs_outermost_first_around_each_kind_of_handler() -> None:
    """The app's, then the handler's own; what it does not pass on is not called."""
    trail: list[str] = []

    def named(name: str) -> Callable[[Delivery, Callable[[], Awaitable[None]]], Awaitable[None]]:
        async def around(delivery: Delivery, call_next: Callable[[], Awaitable[None]]) -> None:
            trail.append(f"{name} in")
            if delivery.value != b"stop":
                await call_next()
            trail.append(f"{name} out")

        return around

    def plain(delivery: Delivery, call_next: Callable[[], None]) -> None:
        trail.append("plain in")
        call_next()
        trail.append("plain out")

    app = App("g")

    @app.handler("orders", middleware=[named("outer"), named("inner")])
    async def bill(value: bytes) -> None:
        trail.append("bill")

    @app.handler("calls", middleware=[plain])
    def note(value: bytes) -> None:
        trail.append("note")

    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        worker.send("calls", b"x")
        worker.until(worker.settled)
        worker.send("orders", b"stop")
        worker.until(worker.settled)
    assert trail == [
        *["outer in", "inner in", "bill", "inner out", "outer out"],
        *["plain in", "note", "plain out"],
        *["outer in", "outer out"],
    ]


@EITHER
def test_what_middleware_raises_is_the_handlers_error(kind: str) -> None:
    """And an error of the handler that middleware swallows is a success."""
    app, seen = App("g"), []
    soon = RetryPolicy.fixed("20ms", 1)

    async def around(delivery: Delivery, call_next: Callable[[], Awaitable[None]]) -> None:
        _before(delivery)
        try:
            await call_next()
        except LookupError:
            seen.append("swallowed")

    def around_sync(delivery: Delivery, call_next: Callable[[], None]) -> None:
        _before(delivery)
        try:
            call_next()
        except LookupError:
            seen.append("swallowed")

    def _before(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise PermissionError("not yet")

    def script(delivery: Delivery) -> Iterator[Gate]:
        raise LookupError("missing")
        yield

    middleware = [around if kind == "async" else around_sync]
    register(app, kind, "orders", script, middleware=middleware, retry=soon)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        worker.until(lambda: seen)
        assert [r.error_type for r in worker.parked("orders")] == ["PermissionError"]
        assert worker.dlq("orders") == []


@EITHER
@pytest.mark.parametrize("end", EXITS, ids=repr)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_exit_of_middleware_is_the_handlers_error(
    kind: str, end: BaseException, when: str
) -> None:
    """Before the handler and after it; the next delivery goes through."""
    app, handled = App("g"), []

    def leave(delivery: Delivery, now: str) -> None:
        if delivery.attempt == 1 and now == when:
            raise end

    async def around(delivery: Delivery, call_next: Callable[[], Awaitable[None]]) -> None:
        leave(delivery, "before")
        await call_next()
        leave(delivery, "after")

    def around_sync(delivery: Delivery, call_next: Callable[[], None]) -> None:
        leave(delivery, "before")
        call_next()
        leave(delivery, "after")

    def script(delivery: Delivery) -> Iterator[Gate]:
        handled.append(delivery.attempt)
        return
        yield

    middleware = [around if kind == "async" else around_sync]
    retry = RetryPolicy.fixed("20ms", 1)
    register(app, kind, "orders", script, middleware=middleware, retry=retry, concurrency=1)
    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(lambda: 2 in handled and worker.settled())
        (parked,) = worker.parked("orders")
        assert worker.dlq("orders") == []
    assert parked.error_type.endswith(type(end).__name__)
    assert handled == ([2] if when == "before" else [1, 2])


@EITHER
@pytest.mark.parametrize("end", EXITS, ids=repr)
def test_an_exit_around_a_publish_is_the_handlers_error(kind: str, end: BaseException) -> None:
    """While a value is encoded, and once it is confirmed: what was written stays written."""
    app = App("g")

    class Leaving(BaseModel):
        @model_serializer
        def leave(self) -> dict[str, str]:
            raise end

    def of(delivery: Delivery) -> Leaving | bytes:
        return Leaving() if delivery.value == b"encode" else b"written"

    async def publish(delivery: Delivery) -> None:
        await app.publish("elsewhere", of(delivery))
        raise end

    def publish_sync(delivery: Delivery) -> None:
        app.publish_sync("elsewhere", of(delivery))
        raise end

    none = RetryPolicy(max_redeliveries=0)
    handle = publish if kind == "async" else publish_sync
    app.handler("orders", name="handle", retry=none, concurrency=1)(handle)
    with live(app) as worker:
        worker.send("orders", b"encode")
        worker.send("orders", b"confirm")
        worker.until(lambda: len(worker.dlq("orders")) == 2 and worker.settled())
        dead = worker.dlq("orders")
        written = worker.broker.records("elsewhere")
    # What a serializer raises comes out of pydantic's own error.
    assert all(type(end).__name__ in f"{d.error_type} {d.error_message}" for d in dead)
    assert [record.value() for record in written] == [b"written"]


@EITHER
def test_middleware_of_the_other_kind_is_refused(kind: str) -> None:
    """In one line that names the middleware and the fix, before anything runs."""

    async def around_async(delivery: Delivery, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()

    def around_sync(delivery: Delivery, call_next: Callable[[], None]) -> None:
        call_next()

    wrong = around_sync if kind == "async" else around_async
    app = App("g", middleware=[wrong])
    register(app, kind, "orders", lambda d: iter(()))
    with pytest.raises(ConfigError) as refused:
        app.check_middleware(app.handlers[0])
    assert wrong.__name__ in str(refused.value)
    assert ("`async def`" if kind == "async" else "`def`") in str(refused.value)


# Publish.


def test_publish_is_confirmed_when_it_returns() -> None:
    """From an async handler, from a thread handler, and from a thread of one's own."""
    app, written = App("g"), []

    @app.handler("orders")
    async def bill(value: bytes) -> None:
        await app.publish("bills", {"order": value.decode()}, key="k", headers=[("h", b"1")])
        written.append(len(worker.broker.records("bills")))

    @app.handler("calls")
    def note(value: bytes) -> None:
        app.publish_sync("notes", value)
        other = threading.Thread(target=app.publish_sync, args=("notes", "from a thread"))
        other.start()
        other.join()
        written.append(len(worker.broker.records("notes")))

    with live(app) as worker:
        worker.send("orders", b"7")
        worker.until(worker.settled)
        worker.send("calls", b"x")
        worker.until(worker.settled)
        (bill_,) = worker.broker.records("bills")
        notes = [record.value() for record in worker.broker.records("notes")]
    assert written == [1, 2]
    assert (bill_.key(), bill_.value()) == (b"k", b'{"order":"7"}')
    assert bill_.headers() == [("h", b"1")]
    assert notes == [b"x", b"from a thread"]


def test_a_publish_that_fails_is_the_handlers_error() -> None:
    """It may be caught; otherwise the policy applies."""
    app, caught = App("g"), []

    @app.handler("orders", retry=RetryPolicy.fixed("20ms", 1))
    async def bill(value: bytes, delivery: Delivery) -> None:
        try:
            await app.publish("bills", value)
        except PublishFailed as exc:
            caught.append(str(exc))
            if delivery.attempt == 2:
                return
            raise

    with live(app) as worker:
        worker.broker.create_topic("bills")
        worker.broker.fail_publish("bills", "not authorised")
        worker.send("orders", b"x")
        worker.until(lambda: len(caught) == 2)
        assert [r.error_type for r in worker.parked("orders")] == ["ackfloor.errors.PublishFailed"]
    assert caught == ["not authorised"] * 2


def test_publish_without_a_worker_says_what_is_missing() -> None:
    """Before one has started and after it has ended."""
    app = App("g")
    register(app, "thread", "orders", lambda d: iter(()))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="needs a running worker"):
            app.publish_sync("bills", b"x")
        with pytest.raises(RuntimeError, match="needs a running worker"):
            asyncio.run(app.publish("bills", b"x"))
        with live(app) as worker:
            app.publish_sync("bills", b"x")
            worker.close()
