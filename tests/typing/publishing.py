"""How `publish` is typed: what users write is accepted, mistakes are refused."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from ackfloor import App
from ackfloor.schemas import Avro, JsonSchema, Protobuf

app = App("shop")


class Order(BaseModel):
    """What is published."""

    id: int


class Message:
    """What protoc generates, as far as types know."""


async def in_a_coroutine(order: Order, message: Message) -> None:
    async with app.publishing(close_timeout="30s"):
        assert_type(await app.publish("orders", order), None)
        await app.publish("orders", None, key="1", headers={"a": "b", "c": None}, partition=3)
        await app.publish("orders", {"id": 1}, key=b"1", headers=[("a", b"b"), ("a", "c")])
        await app.publish("orders", message, encoder=Protobuf(register=True))


def on_a_thread(order: Order, message: Message) -> None:
    with app.publishing():
        app.publish_sync("orders", order, timeout_s=2.5)
        app.publish_sync("orders", order, encoder=Avro("{}", register=True), timeout_s=2.5)
        app.publish_sync("orders", {"id": 1}, encoder=JsonSchema(schema="{}"))


# What is refused at run time is refused here as well, where types can tell.


def mistakes(order: Order, message: Message) -> None:
    app.publish_sync("orders", message)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.publish_sync("orders", order, key=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.publish_sync("orders", order, encoder=bytes)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.publish_sync("orders", order, headers={"a": 1})  # type: ignore[dict-item]  # pyright: ignore[reportCallIssue, reportArgumentType]
    app.publishing(close_timeout=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
