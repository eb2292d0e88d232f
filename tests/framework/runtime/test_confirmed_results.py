"""Results are confirmed before their records are settled, whatever becomes of either meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from ackfloor import App, RetryPolicy
from ackfloor.core.messages.events import DeliveryTimedOut
from ackfloor.runtime.calls.results import MOST_UNCONFIRMED
from tests.framework.runtime.held_publisher import HeldPublisher
from tests.framework.runtime.live import Gate, Live, live

RETRY = RetryPolicy.fixed("1h", 1)
MANY = MOST_UNCONFIRMED + 100


async def returns_async(value: bytes) -> bytes:
    """One."""
    return value


def returns(value: bytes) -> bytes:
    """One, on a thread."""
    return value


async def yields_async(value: bytes) -> AsyncIterator[bytes]:
    """One, as a generator."""
    yield value


def yields(value: bytes) -> Iterator[bytes]:
    """One, as a generator on a thread."""
    yield value


async def batch_async(values: list[bytes]) -> list[bytes]:
    """Batches."""
    return values


def batch(values: list[bytes]) -> list[bytes]:
    """Batches on threads."""
    return values


SINGLE = [returns_async, returns, yields_async, yields]
EVERY = [*SINGLE, batch_async, batch]


def bills(worker: Live) -> list[bytes | None]:
    """What was published."""
    return [record.value() for record in worker.broker.records("bills")]


def shop(function: Callable[..., Any], **options: Any) -> App:
    """An app with one handler, whose results go to `bills`."""
    app = App("g")
    if function in (batch, batch_async):
        options |= {"batch": 1, "batch_wait": "10ms"}
    app.handler("orders", to="bills", name="handle", retry=RETRY, **options)(function)
    return app


@pytest.mark.parametrize("function", EVERY)
@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_record_is_settled_after_its_result_is_confirmed(
    function: Callable[..., Any], ordering: str
) -> None:
    """Its slot waits: nothing is committed beyond it."""
    app = shop(function, ordering=ordering)
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x", key=b"k")
        worker.until(lambda: publisher.count == 1)
        worker.turn_for(0.1)
        assert not worker.settled()
        assert len(list(worker.executor().running())) == 1
        publisher.release()
        worker.until(worker.settled)
        assert bills(worker) == [b"x"]
        assert worker.parked("orders") == []


@pytest.mark.parametrize("function", EVERY)
def test_a_write_that_fails_later_is_the_failure_of_its_record(
    function: Callable[..., Any],
) -> None:
    """The handler had returned long ago."""
    app = shop(function)
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count == 1)
        publisher.refuse()
        worker.until(worker.settled)
        (record,) = worker.parked("orders")
        assert record.error_type == "ackfloor.errors.PublishFailed"
        assert record.reason == "error"


@pytest.mark.parametrize("function", EVERY)
def test_the_deadline_is_that_of_the_handler_and_its_publishing(
    function: Callable[..., Any],
) -> None:
    """The record times out, and its result may come all the same: at least once."""
    app = shop(function, consume_timeout="1m")
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count == 1)
        worker.skip(61)
        worker.until(lambda: worker.watcher.told(DeliveryTimedOut))
        worker.until(worker.settled)
        assert [record.reason for record in worker.parked("orders")] == ["timeout"]
        publisher.release()
        assert bills(worker) == [b"x"]
        worker.turn_for(0.05)
        assert len(worker.parked("orders")) == 1


@pytest.mark.parametrize("kind", ["returns", "yields", "batch"])
def test_what_comes_after_the_deadline_is_not_published(kind: str) -> None:
    """Its record was parked, and is handled again: the thread was given up long ago."""
    gate, ended = Gate(), threading.Event()

    def late(value: bytes) -> bytes:
        gate.wait()
        ended.set()
        return value

    def late_generator(value: bytes) -> Iterator[bytes]:
        try:
            yield b"in time"
            gate.wait()
            yield value
        finally:
            ended.set()

    def late_batch(values: list[bytes]) -> list[bytes]:
        gate.wait()
        ended.set()
        return values

    function = {"returns": late, "yields": late_generator, "batch": late_batch}[kind]
    options = {"batch": 1, "batch_wait": "10ms"} if kind == "batch" else {}
    app = shop(function, consume_timeout="1m", concurrency=1, **options)
    with live(app) as worker:
        worker.broker.create_topic("bills")
        worker.send("orders", b"x")
        worker.until(lambda: gate.arrived)
        worker.skip(61)
        worker.until(worker.settled)
        gate.open()
        assert ended.wait(60)
        # Another record is handled behind it: whatever the first did is done.
        worker.send("orders", b"next")
        worker.until(worker.settled)
        assert b"x" not in bills(worker)
        assert b"next" in bills(worker)


def test_what_a_shutdown_cuts_short_is_released() -> None:
    """Its record stays open and comes again, so that the result may be there twice."""
    app = shop(returns_async)
    with live(app, shutdown_s=0.0) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count == 1)
        assert worker.close() == 1
        found = worker.broker.committed("g", "orders", 0)
        assert found is None or found.position == 0


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_generator_is_so_many_results_ahead_of_the_broker(kind: str) -> None:
    """It waits before it yields more, however many it has; its slot holds no more."""
    made: list[int] = []

    async def many_async(value: bytes) -> AsyncIterator[bytes]:
        for number in range(MANY):
            made.append(number)
            yield b"%d" % number
        await asyncio.sleep(0)

    def many(value: bytes) -> Iterator[bytes]:
        for number in range(MANY):
            made.append(number)
            yield b"%d" % number

    app = shop(many_async if kind == "async" else many)
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count > MOST_UNCONFIRMED)
        worker.turn_for(0.1)
        assert len(made) == publisher.count == MOST_UNCONFIRMED + 1
        assert not worker.settled()

        def all_released() -> bool:
            publisher.release()
            return worker.settled()

        worker.until(all_released)
        assert bills(worker) == [b"%d" % number for number in range(MANY)]
