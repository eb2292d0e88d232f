"""`App.publish` without `await`: its record is not taken for handled.

Once it only warned: the record was settled, and what should have been published was lost.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ackfloor import App, Delivery, PublishFailed, Retry, RetryPolicy
from ackfloor.runtime.calls import publishes
from tests.framework.runtime.held_publisher import HeldPublisher
from tests.framework.runtime.live import Gate, Live, live

FORGOTTEN = "ackfloor.errors.PublishNotAwaited"
RETRY = RetryPolicy.fixed("1h", 1)


def unconfirmed(worker: Live) -> dict[publishes.Handled, Any]:
    """The calls that nobody has waited for, by what is handled."""
    return dict(worker.worker._publishes.open)


def assert_forgotten(worker: Live, *, count: int = 1, fix: str = "await app.publish") -> None:
    """The records were parked for it, nothing was published, and nothing is kept of it."""
    parked = worker.parked("orders")
    assert [record.error_type for record in parked] == [FORGOTTEN] * count
    assert all(fix in (record.error_message or "") for record in parked)
    assert all("test_forgotten_publishes.py:" in (r.error_message or "") for r in parked)
    assert "bills" not in worker.broker.topics
    assert unconfirmed(worker) == {}


@pytest.mark.parametrize(
    "options",
    [{}, {"ordering": "key", "on_failure": "park"}, {"ack": "manual"}],
    ids=["unordered", "key", "manual"],
)
def test_a_forgotten_await_is_the_failure_of_its_record(options: dict[str, Any]) -> None:
    """Nothing is published, the text names the line and the fix, and the next record is handled."""
    app, handled = App("g"), []

    @app.handler("orders", retry=RETRY, **options)
    async def bill(value: bytes, delivery: Delivery) -> None:
        handled.append(value)
        if value == b"bad":
            app.publish("bills", value)  # type: ignore[unused-coroutine]
        elif options.get("ack") == "manual":
            delivery.ack()

    with live(app) as worker:
        worker.send("orders", b"bad", key=b"a")
        worker.send("orders", b"good", key=b"a")
        worker.until(worker.settled)
        assert_forgotten(worker)
    assert handled == [b"bad", b"good"]
    # No warning either: the failure says it.
    gc.collect()


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_thread_that_calls_the_async_publish_fails_its_record(ordering: str) -> None:
    """The fix is another one there."""
    app = App("g")

    @app.handler("orders", retry=RETRY, ordering=ordering, on_failure="park")
    def bill(value: bytes) -> None:
        app.publish("bills", value)  # type: ignore[unused-coroutine]

    with live(app) as worker:
        worker.send("orders", b"x", key=b"a")
        worker.until(worker.settled)
        assert_forgotten(worker, fix="app.publish_sync")


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_forgotten_await_fails_the_records_of_a_batch(kind: str) -> None:
    """All that were not answered one by one."""
    app = App("g")

    def forget(values: list[bytes], deliveries: list[Delivery]) -> None:
        if deliveries[0].offset == 0:
            deliveries[0].discard("answered by itself")
        for value in values:
            app.publish("bills", value)  # type: ignore[unused-coroutine]

    async def bill_async(values: list[bytes], deliveries: list[Delivery]) -> None:
        forget(values, deliveries)

    def bill(values: list[bytes], deliveries: list[Delivery]) -> None:
        forget(values, deliveries)

    function = bill_async if kind == "async" else bill
    app.handler("orders", retry=RETRY, batch=3, batch_wait="50ms")(function)
    with live(app) as worker:
        worker.send("orders", b"x", n=3)
        worker.until(worker.settled)
        assert_forgotten(worker, count=2)


def test_a_key_that_waits_for_its_failed_record_waits_for_this_one_too() -> None:
    """Its next record does not overtake it."""
    app, order = App("g"), []

    @app.handler("orders", ordering="key", retry=RetryPolicy.fixed("20ms", 3))
    async def bill(value: bytes, delivery: Delivery) -> None:
        order.append((value, delivery.attempt))
        publishing = app.publish("bills", value)
        if (value, delivery.attempt) != (b"x0", 1):
            await publishing

    with live(app) as worker:
        worker.send("orders", b"x", key=b"a", n=2)
        worker.until(worker.settled)
        assert [record.value() for record in worker.broker.records("bills")] == [b"x0", b"x1"]
    assert order == [(b"x0", 1), (b"x0", 2), (b"x1", 1)]


# Tasks.


def start_task(app: App, tasks: list[Any]) -> Any:
    """A handler that starts a task and does not wait for it."""

    async def bill(value: bytes) -> None:
        tasks.append(asyncio.create_task(app.publish("bills", value)))

    return bill


def start_gather(app: App, tasks: list[Any]) -> Any:
    """A handler that starts several and does not wait for them."""

    async def bill(value: bytes) -> None:
        tasks.append(asyncio.gather(app.publish("bills", value), app.publish("bills", value)))

    return bill


@pytest.mark.parametrize(("start", "writes"), [(start_task, 1), (start_gather, 2)])
def test_what_is_under_way_is_confirmed_before_its_record_is_settled(
    start: Callable[[App, list[Any]], Any], writes: int
) -> None:
    """The handler has returned, and its slot waits in its place."""
    app, tasks = App("g"), []
    app.handler("orders", name="bill")(start(app, tasks))
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count == writes)
        worker.turn_for(0.1)
        assert not worker.settled()
        publisher.release()
        worker.until(worker.settled)
        assert len(worker.broker.records("bills")) == writes
        assert worker.parked("orders") == []
        assert unconfirmed(worker) == {}


def test_what_is_under_way_and_fails_is_the_failure_of_its_record() -> None:
    """As if it had been awaited."""
    app, tasks = App("g"), []
    app.handler("orders", name="bill", retry=RETRY)(start_task(app, tasks))
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(lambda: publisher.count == 1)
        publisher.refuse()
        worker.until(worker.settled)
        assert [r.error_type for r in worker.parked("orders")] == ["ackfloor.errors.PublishFailed"]
        assert unconfirmed(worker) == {}
        # asyncio would say that nobody has looked at it.
        assert isinstance(tasks[0].exception(), PublishFailed)


@pytest.mark.parametrize("looks", [False, True])
def test_a_failure_that_nobody_has_looked_at_is_that_of_the_record(looks: bool) -> None:
    """It came while the handler was at something else; whoever looks at it decides for himself."""
    app = App("g")

    @app.handler("orders", retry=RETRY)
    async def bill(value: bytes) -> None:
        task = asyncio.create_task(app.publish("bills", value))
        await asyncio.wait([task])
        if looks:
            assert isinstance(task.exception(), PublishFailed)

    with live(app) as worker:
        worker.broker.create_topic("bills")
        worker.broker.fail_publish("bills", "not authorised")
        worker.send("orders", b"x")
        worker.until(worker.settled)
        failed = [record.error_type for record in worker.parked("orders")]
        assert failed == ([] if looks else ["ackfloor.errors.PublishFailed"])
        assert unconfirmed(worker) == {}


async def awaited(app: App, value: bytes) -> None:
    """The plain way."""
    await app.publish("bills", value)


async def gathered(app: App, value: bytes) -> None:
    """Several at once."""
    await asyncio.gather(*(app.publish("bills", value) for _ in range(3)))


async def in_time(app: App, value: bytes) -> None:
    """With a limit, which Python keeps in a task of its own."""
    await asyncio.wait_for(app.publish("bills", value), 60)


async def in_a_group(app: App, value: bytes) -> None:
    """In a group of tasks."""
    async with asyncio.TaskGroup() as group:
        group.create_task(app.publish("bills", value))


async def caught(app: App, value: bytes) -> None:
    """It fails, and the handler has another way."""
    with suppress(PublishFailed):
        await app.publish("closed", value)
    for failed in await asyncio.gather(app.publish("closed", value), return_exceptions=True):
        assert isinstance(failed, PublishFailed)
    await app.publish("bills", value)


async def given_up(app: App, value: bytes) -> None:
    """The handler has stopped waiting, and says so."""
    publishing = asyncio.create_task(app.publish("bills", value))
    await asyncio.sleep(0)
    publishing.cancel()
    with suppress(asyncio.CancelledError):
        await publishing


@pytest.mark.parametrize(
    "way", [awaited, gathered, in_time, in_a_group, caught, given_up], ids=lambda way: way.__name__
)
def test_whoever_waits_for_it_is_told_and_nobody_else(way: Callable[[App, bytes], Any]) -> None:
    """No way to await it is taken for a forgotten one."""
    app = App("g")

    @app.handler("orders", retry=RETRY)
    async def bill(value: bytes) -> None:
        await way(app, value)

    with live(app) as worker:
        worker.broker.create_topic("closed")
        worker.broker.fail_publish("closed", "not authorised")
        worker.send("orders", b"x")
        worker.until(worker.settled)
        assert worker.parked("orders") == []
        assert worker.broker.records("bills")
        assert unconfirmed(worker) == {}


async def no_time_left(app: App, value: bytes) -> None:
    """The handler's own time is over: it is told so."""
    with suppress(TimeoutError):
        await asyncio.wait_for(app.publish("bills", value), 0)


async def cancelled_at_once(app: App, value: bytes) -> None:
    """The task is cancelled before its first step, and waited for."""
    publishing = asyncio.create_task(app.publish("bills", value))
    publishing.cancel()
    with suppress(asyncio.CancelledError):
        await publishing


async def cancelled_last(app: App, value: bytes) -> None:
    """The same as the handler's last step: the task ends after it."""
    asyncio.create_task(app.publish("bills", value)).cancel()


async def closed(app: App, value: bytes) -> None:
    """The coroutine itself is given up."""
    app.publish("bills", value).close()


@pytest.mark.parametrize(
    "way",
    [no_time_left, cancelled_at_once, cancelled_last, closed],
    ids=lambda way: way.__name__,
)
def test_what_is_given_up_before_it_begins_was_not_forgotten(
    way: Callable[[App, bytes], Any],
) -> None:
    """Nothing is published, the handler knows, and its record is handled."""
    app = App("g")

    @app.handler("orders", retry=RETRY)
    async def bill(value: bytes) -> None:
        await way(app, value)

    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        assert worker.parked("orders") == []
        assert "bills" not in worker.broker.topics
        assert unconfirmed(worker) == {}


def test_nothing_is_kept_of_a_handler_that_fails_by_itself() -> None:
    """What it says counts; Python warns of what was not awaited."""
    app = App("g")

    @app.handler("orders", retry=RETRY)
    async def bill(value: bytes) -> None:
        publishing = app.publish("bills", value)
        publishing.close()
        raise Retry(reason="later")

    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        assert [record.reason for record in worker.parked("orders")] == ["retry"]
        assert unconfirmed(worker) == {}


def test_what_outlives_its_handler_publishes_for_nobody() -> None:
    """Its record is settled, and it fails none."""
    app, gate, tasks = App("g"), Gate(), []

    @app.handler("orders")
    async def bill(value: bytes) -> None:
        async def later() -> None:
            await gate.passed()
            await app.publish("bills", value)

        tasks.append(asyncio.create_task(later()))

    with live(app) as worker:
        worker.send("orders", b"x")
        worker.until(worker.settled)
        assert "bills" not in worker.broker.topics
        gate.open()
        worker.until(tasks[0].done)
        assert unconfirmed(worker) == {}
        assert len(worker.broker.records("bills")) == 1


def test_a_handler_whose_time_is_up_while_it_is_waited_for_times_out() -> None:
    """The time that its publish takes is the handler's."""
    app, tasks = App("g"), []
    app.handler("orders", name="bill", retry=RETRY, consume_timeout="50ms")(start_task(app, tasks))
    with live(app) as worker:
        publisher = HeldPublisher(worker, app)
        worker.send("orders", b"x")
        worker.until(worker.settled)
        assert [record.reason for record in worker.parked("orders")] == ["timeout"]
        worker.until(lambda: not unconfirmed(worker))
        publisher.release()
        worker.until(tasks[0].done)
