"""Registration as type checkers see it; checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, assert_type

from ackfloor.app import App
from ackfloor.core.records.record import Record
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.declare.handler import Registry, Router
from ackfloor.delivery import Delivery

# An app's settings are typed one by one, with their choices.
App("shop", workers=2, start="latest", max_open_bytes="1GiB", drain_timeout=timedelta(seconds=5))
App("shop", kafka={"bootstrap_servers": "kafka:9092", "consumer": {"client.rack": "a"}})
App("shop", worker=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
App("shop", start="late")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
App("shop", commit_interval=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

registry = Registry()
router = Router()


@registry.handler("orders")
async def asynchronous(order: bytes, delivery: Delivery) -> None: ...


@router.handler("returns", "refunds")
def threaded(order: str | None) -> None: ...


# The function comes back with its own type: it can be called as it was written.
assert_type(threaded("x"), None)
threaded(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def call(delivery: Delivery) -> None:
    """Still a coroutine function."""
    await asynchronous(b"x", delivery)
    await asynchronous(b"x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Upper:
    """A decoder, by its shape."""

    def decode(self, data: bytes, record: Record) -> str:
        """Upper case."""
        return data.decode().upper()


async def around(delivery: Delivery, call_next: Callable[[], Awaitable[None]]) -> None:
    """A middleware."""
    await call_next()


@registry.handler(
    "everything",
    name="all_options",
    ordering="key",
    on_failure="park",
    concurrency=8,
    consume_timeout=timedelta(seconds=30),
    retry=RetryPolicy("1s", 5, "10m", 6, 0.15),
    dead_letter_on=(ValueError, KeyError),
    ack="manual",
    max_extend="5m",
    executor="async",
    decoder=Upper(),
    middleware=[around],
)
async def every_option(order: str, delivery: Delivery) -> None: ...


@registry.handler("batched", batch=500, batch_wait="200ms")
async def batched(orders: list[bytes], deliveries: list[Delivery]) -> None: ...


@router.handler("lists", batch=10, batch_wait=timedelta(seconds=1))
def lists(deliveries: list[Delivery]) -> None: ...


# Lists are what it is called with, also by a test.
assert_type(lists([]), None)
lists(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


registry.include(router)


# What is refused at run time is refused here as well, where types can tell.

registry.handler("a", ordering="fifo")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler("a", consume_timeout=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler("a", consume_time="30s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
registry.handler("a", dead_letter_on=ValueError)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler("a", decoder=bytes)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler("a", batch="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler("a", batch=10, batch_wait=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
registry.handler(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@registry.handler("generated")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def generator(order: bytes) -> AsyncIterator[bytes]:
    """A generator is no handler."""
    yield order


@registry.handler("returning")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def returning(order: bytes) -> int:
    """A return value would go nowhere."""
    return len(order)


@registry.handler("answers", batch=10)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def answers(orders: list[bytes]) -> list[bool]:
    """A batch is answered through its deliveries."""
    return [True for _ in orders]


def untyped_functions_are_accepted(function: Callable[..., Any]) -> None:
    """What was not typed is checked when the app starts."""
    registry.handler("untyped")(function)


def view(tracked: TrackedDelivery) -> Delivery:
    """What the runtime passes is of the shape that users rely on."""
    return tracked
