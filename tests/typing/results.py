"""How results are typed: what a handler with `to=` may return or yield."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from typing import assert_type

from pydantic import BaseModel

from ackfloor import App, Router, To
from ackfloor.schemas import Avro, Protobuf

app = App("billing")
router = Router()


class Order(BaseModel):
    """What is handled."""

    id: int


class Invoice(BaseModel):
    """What comes of it."""

    order: int
    customer: str


class Message:
    """What protoc generates, as far as types know."""


def customer(invoice: Invoice) -> str:
    """A key."""
    return invoice.customer


@app.handler("orders", to="invoices")
async def bill(order: Order) -> Invoice | None:
    """One result, or none."""
    return Invoice(order=order.id, customer="ann")


# The function comes back with its own type.
async def call() -> None:
    """It can be called as it was written."""
    assert_type(await bill(Order(id=1)), Invoice | None)


@router.handler("returns", to=To("refunds", key=customer, headers={"type": "refund"}))
def refund(order: Order) -> Invoice:
    """On a thread, with a key."""
    return Invoice(order=order.id, customer="ann")


assert_type(refund(Order(id=1)), Invoice)


@app.handler("letters", to=To("copies", key=lambda text: text, headers=lambda _: [("a", b"b")]))
async def copies(text: str) -> AsyncIterator[str]:
    """As many as it yields."""
    yield text


@app.handler("words", to="counts")
def counts(text: str) -> Iterator[dict[str, int]]:
    """On a thread."""
    yield {text: len(text)}


@app.handler("more-words", to="counts", consume_timeout="30s")
def more_counts(text: str) -> Generator[int | None]:
    """By another hint."""
    yield len(text)


@app.handler("other-words", to="counts")
def other_counts(text: str) -> Iterable[int]:
    """By another one."""
    yield len(text)


@app.handler("batched", to="invoices", batch=100)
async def batched(orders: list[Order]) -> list[Invoice | None]:
    """One result an item."""
    return [None for _ in orders]


# An encoder takes what it takes.


@app.handler("messages", to=To("encoded", encoder=Protobuf()))
async def encoded(order: Order) -> Message:
    """What no other publishing takes."""
    return Message()


@app.handler("many-messages", to=To("encoded", encoder=Avro(), key=lambda _: b"k"))
def many_encoded(order: Order) -> Iterator[Message]:
    """Several."""
    yield Message()


# What is refused at run time is refused here as well, where types can tell.


@app.handler("plain", to="encoded")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def plain(order: Order) -> Message:
    """Nothing encodes it."""
    return Message()


@app.handler("plains", to=To("encoded"))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def plains(order: Order) -> Iterator[Message]:
    """Nothing encodes them."""
    yield Message()


@app.handler("nowhere")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def nowhere(order: Order) -> Invoice:
    """It goes nowhere."""
    return Invoice(order=order.id, customer="ann")


app.handler("a", to=3)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
app.handler("a", to="b", batch="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.handler("a", too="b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
To("a", key=b"k")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
To("a", encoder=bytes)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
To("a", headers={"a": 1})  # type: ignore[dict-item]  # pyright: ignore[reportCallIssue, reportArgumentType]
