"""`to=`: what a handler returns or yields is published; as a user's test in memory sees it."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from ackfloor import App, ConfigError, Delivery, Retry, RetryPolicy, Router, To
from ackfloor.schemas import JsonSchema
from ackfloor.testing import Harness, SchemaRegistry

LATER = RetryPolicy.fixed("1m", 1)


class Order(BaseModel):
    """What is handled."""

    id: int
    customer: str = "ann"


class Invoice(BaseModel):
    """What comes of it."""

    order: int
    customer: str = "ann"


async def returns_async(order: Order) -> Invoice | None:
    """One result, or none."""
    return Invoice(order=order.id) if order.id else None


def returns(order: Order) -> Invoice | None:
    """The same on a thread."""
    return Invoice(order=order.id) if order.id else None


async def yields_async(order: Order) -> AsyncIterator[Invoice | None]:
    """As many as its number says, and one that is none."""
    for _ in range(order.id):
        yield Invoice(order=order.id)
    yield None


def yields(order: Order) -> Iterator[Invoice | None]:
    """The same on a thread."""
    yield None
    for _ in range(order.id):
        yield Invoice(order=order.id)


KINDS = [returns_async, returns, yields_async, yields]


def published(h: Harness, topic: str = "invoices") -> list[int]:
    """The orders of the invoices, in their order."""
    return [record.json()["order"] for record in h.published(topic)]


@pytest.mark.parametrize("function", KINDS)
def test_what_a_handler_returns_or_yields_is_published(function: Callable[..., Any]) -> None:
    """With the record's own key and headers; None is no result, and its record is handled."""
    app = App("billing")
    app.handler("orders", to="invoices")(function)
    with Harness(app) as h:
        for number in range(3):
            h.send("orders", Order(id=number), key=f"k{number}", headers=[("a", b"1"), ("a", None)])
        expected = [1, 2] if function in (returns, returns_async) else [1, 2, 2]
        assert published(h) == expected
        assert {record.key for record in h.published("invoices")} == {b"k1", b"k2"}
        assert {record.headers for record in h.published("invoices")} == {
            (("a", b"1"), ("a", None))
        }
        assert len(h.handled("orders")) == 3
        assert h.errors == []


@dataclass
class Point:
    """A value that is no model."""

    x: int


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (b"\xff", b"\xff"), ("ä", "ä".encode()), ({"a": 1}, b'{"a":1}'), ([1, None], b"[1,null]"),
        (0, b"0"), (False, b"false"), ("", b""), ([], b"[]"), (Point(3), b'{"x":3}'),
    ],
    ids=repr,
)  # fmt: skip
def test_a_result_is_what_publish_accepts(result: Any, value: bytes) -> None:
    """Also where Python takes it for false. A list is one record."""
    app = App("billing")

    @app.handler("orders", to="invoices")
    async def bill(order: bytes) -> Any:
        return result

    with Harness(app) as h:
        h.send("orders", b"x")
        assert [(record.value, record.key) for record in h.published("invoices")] == [(value, None)]


def test_key_headers_and_the_rest_are_chosen() -> None:
    """Headers of the same name give way, others of the record stay in front."""
    app = App("billing")
    invoices = To(
        "invoices",
        key=lambda invoice: invoice.customer,
        headers=lambda invoice: {"type": "invoice", "order": str(invoice.order)},
    )
    letters = To("letters", key=lambda _: None, headers={"type": b"letter"})
    app.handler("orders", to=invoices)(returns)

    @app.handler("complaints", to=letters)
    async def answer(text: str) -> str:
        return text.upper()

    with Harness(app) as h:
        own = [("type", b"order"), ("trace", b"7"), ("type", b"x")]
        h.send("orders", Order(id=1), key="k", headers=own)
        h.send("complaints", "late", key="k", headers=own)
        (invoice,), (letter,) = h.published("invoices"), h.published("letters")
        assert invoice.key == b"ann"
        assert invoice.headers == (("trace", b"7"), ("type", b"invoice"), ("order", b"1"))
        assert (letter.key, letter.value) == (None, b"LATE")
        assert letter.headers == (("trace", b"7"), ("type", b"letter"))


@pytest.mark.parametrize("copies", [[], ["spring", "kafka"]], ids=["ours", "copies"])
def test_our_headers_are_not_passed_on(copies: list[Literal["spring", "kafka"]]) -> None:
    """The result of a redelivery is like that of a first one, also with copies for other tools."""
    app = App("billing", foreign_headers=copies)

    @app.handler("orders", to="invoices", retry=LATER)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if delivery.attempt == 1:
            raise Retry
        assert len(delivery.headers) > 10
        return Invoice(order=order.id)

    own = (("trace", b"7"), ("kafka_dlt-original-topic", b"its own"))
    with Harness(app) as h:
        h.send("orders", Order(id=1), key="k", headers=own)
        h.advance("2m")
        (invoice,) = h.published("invoices")
        assert (invoice.key, invoice.headers) == (b"k", own)


def test_results_are_encoded_by_a_schema() -> None:
    """Of any type that the encoder takes."""
    schema = '{"type": "object", "properties": {"order": {"type": "integer"}}}'
    to = To("invoices", encoder=JsonSchema(schema=schema, register=True))
    with SchemaRegistry() as registry:
        app = App("billing", registry={"url": registry.url})
        app.handler("orders", to=to)(returns_async)
        with Harness(app) as h:
            h.send("orders", Order(id=1))
            (invoice,) = h.published("invoices")
            assert invoice.value is not None
            # In front of the JSON are five bytes that name the schema.
            assert (invoice.value[:1], json.loads(invoice.value[5:])["order"]) == (b"\x00", 1)


@pytest.mark.parametrize("function", KINDS)
def test_a_result_that_is_refused_fails_its_record(function: Callable[..., Any]) -> None:
    """It is parked like after any error, delivered again, and then dead-lettered; never lost."""
    app = App("billing")
    app.handler("orders", to="invoices", retry=LATER)(function)
    with Harness(app) as h:
        h.broker.create_topic("invoices")
        h.broker.fail_publish("invoices", "not authorised")
        h.send("orders", Order(id=1))
        (record,) = h.parked("orders")
        assert record.error_type == "ackfloor.errors.PublishFailed"
        assert "not authorised" in (record.error_message or "")
        assert h.handled("orders") == []
        h.advance("2m")
        assert [letter.error_type for letter in h.dlq("orders")] == [record.error_type]
        h.broker.heal()
        h.send("orders", Order(id=1))
        assert published(h) == [1]


def failing_key(invoice: Invoice) -> str:
    """A mistake of the user's."""
    raise ZeroDivisionError(invoice.order)


@pytest.mark.parametrize(
    ("to", "result", "says"),
    [
        (To("invoices", key=lambda _: 7), "x", "TypeError: the function to.key returned int"),  # type: ignore[arg-type,return-value]
        (To("invoices", key=failing_key), Invoice(order=3), "ZeroDivisionError: 3"),
        (To("invoices", headers=lambda _: {"ackfloor.group": "x"}), "x", "ValueError: to.headers"),
        (To("invoices"), object(), "PydanticSerializationError: Unable to serialize"),
        (To("invoices"), iter([1]), "TypeError: the handler's result is an iterator"),
    ],
    ids=["key", "raises", "headers", "value", "iterator"],
)
def test_a_result_that_can_not_be_written_fails_its_record(
    to: To[Any], result: Any, says: str
) -> None:
    """With what was wrong, before anything is published."""
    app = App("billing")

    @app.handler("orders", to=to, retry=LATER)
    def bill(order: bytes) -> Any:
        return result

    with Harness(app) as h:
        h.send("orders", b"x")
        (record,) = h.parked("orders")
        kind = (record.error_type or "").rpartition(".")[2]
        assert f"{kind}: {record.error_message}".startswith(says)
        assert h.published("invoices") == []


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_generator_that_fails_has_published_what_came_before(kind: str) -> None:
    """And publishes it again with its record: at least once. Its clean-up has run."""
    app, closed = App("billing"), []

    async def many_async(order: Order, delivery: Delivery) -> AsyncIterator[Invoice]:
        try:
            for number in range(3):
                if number == 2 and delivery.attempt == 1:
                    raise Retry
                yield Invoice(order=number)
        finally:
            closed.append(delivery.attempt)

    def many(order: Order, delivery: Delivery) -> Iterator[Invoice]:
        try:
            for number in range(3):
                if number == 2 and delivery.attempt == 1:
                    raise Retry
                yield Invoice(order=number)
        finally:
            closed.append(delivery.attempt)

    app.handler("orders", to="invoices", retry=LATER)(many_async if kind == "async" else many)
    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert published(h) == [0, 1]
        h.advance("2m")
        assert published(h) == [0, 1, 0, 1, 2]
    assert closed == [1, 2]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_generator_ends_with_the_first_result_that_is_refused(kind: str) -> None:
    """The rest of it is not called for; it is closed."""
    app, asked = App("billing"), []

    async def many_async(order: Order) -> AsyncIterator[int]:
        try:
            for number in range(100):
                asked.append(number)
                yield number
        finally:
            asked.append(-1)

    def many(order: Order) -> Iterator[int]:
        try:
            for number in range(100):
                asked.append(number)
                yield number
        finally:
            asked.append(-1)

    app.handler("orders", to="invoices", retry=LATER)(many_async if kind == "async" else many)
    with Harness(app) as h:
        h.broker.create_topic("invoices")
        h.broker.fail_publish("invoices", "no leader")
        h.send("orders", Order(id=1))
        assert len(h.parked("orders")) == 1
    assert asked == [0, -1]


def test_middleware_is_around_the_publishing() -> None:
    """What it does after the call comes after the result; it need not pass anything on."""
    app, seen = App("billing"), []

    async def around(delivery: Delivery, call_next: Callable[[], Any]) -> None:
        seen.append(len(h.published("invoices")))
        assert await call_next() is None
        seen.append(len(h.published("invoices")))

    app.handler("orders", to="invoices", middleware=[around])(returns_async)
    with Harness(app) as h:
        h.send("orders", Order(id=1))
    assert seen == [0, 1]


def test_results_are_handled_by_the_next_handler_in_key_order() -> None:
    """A chain of two handlers, each in the order of its key, on a router."""
    router, seen = Router(), []

    @router.handler("orders", ordering="key", to="invoices")
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id, customer=order.customer)

    @router.handler("invoices", ordering="key")
    def send(invoice: Invoice, delivery: Delivery) -> None:
        seen.append((delivery.key, invoice.order))

    app = App("billing")
    app.include(router)
    with Harness(app) as h:
        for number in range(20):
            h.send("orders", Order(id=number), key=f"k{number % 2}")
        h.settle()
    for key in (0, 1):
        assert [n for k, n in seen if k == f"k{key}".encode()] == [*range(key, 20, 2)]


def test_a_failed_result_blocks_its_key() -> None:
    """Its lane waits, and no later result overtakes it."""
    app = App("billing")
    app.handler("orders", ordering="key", to="invoices", retry=LATER)(returns)
    with Harness(app) as h:
        h.broker.create_topic("invoices")
        h.broker.fail_publish("invoices", "no leader")
        h.send("orders", Order(id=1), key="k")
        h.send("orders", Order(id=2), key="k")
        h.broker.heal()
        h.send("orders", Order(id=3), key="other")
        assert published(h) == [3]
        h.advance("2m")
        assert published(h) == [3, 1, 2]


def test_every_worker_of_a_broadcast_publishes() -> None:
    """As every worker handles the record."""
    app = App("billing", mode="broadcast")
    app.handler("orders", to="invoices")(returns)
    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert published(h) == [1]


# Batches.


async def many_async(orders: list[Order], deliveries: list[Delivery]) -> list[Any]:
    """What the first value of the batch asks for."""
    return batch_results(orders, deliveries)


def many(orders: list[Order], deliveries: list[Delivery]) -> list[Any]:
    """The same on a thread."""
    return batch_results(orders, deliveries)


def batch_results(orders: list[Order], deliveries: list[Delivery]) -> Any:
    """One result an item, but for those without a number."""
    if orders[0].customer == "none at all":
        return []
    if orders[0].customer == "short":
        return [Invoice(order=1)]
    if orders[0].customer == "nothing":
        return None
    if orders[0].customer == "answered":
        deliveries[1].ack()
    if orders[0].customer == "discarded":
        deliveries[1].discard("not ours")
        return [
            Invoice(order=order.id) if number != 1 else None for number, order in enumerate(orders)
        ]
    return [
        Invoice(order=order.id, customer=order.customer) if order.id else None for order in orders
    ]


BATCHES = [many_async, many]


def batched(function: Callable[..., Any], to: str | To[Any] = "invoices", size: int = 3) -> App:
    """An app with one batch handler."""
    app = App("billing")
    app.handler("orders", to=to, batch=size, batch_wait="1s", retry=LATER, breaker=None)(function)
    return app


@pytest.mark.parametrize("function", BATCHES)
def test_a_batch_returns_one_result_an_item(function: Callable[..., Any]) -> None:
    """Each with the key and the headers of its own record; None publishes nothing."""
    to = To("invoices", headers={"type": "invoice"})
    with Harness(batched(function, to)) as h:
        for number in (1, 0, 2):
            h.send("orders", Order(id=number), key=f"k{number}", headers=[("n", b"%d" % number)])
        assert [(r.key, r.headers) for r in h.published("invoices")] == [
            (b"k1", (("n", b"1"), ("type", b"invoice"))),
            (b"k2", (("n", b"2"), ("type", b"invoice"))),
        ]
        assert published(h) == [1, 2]
        assert len(h.handled("orders")) == 3


def test_items_that_do_not_decode_have_no_result() -> None:
    """They are in neither list, so the results are one for each item that is."""
    with Harness(batched(many)) as h:
        h.send("orders", Order(id=1), key="a")
        h.send("orders", b"no json", key="b")
        h.send("orders", Order(id=3), key="c")
        assert [(record.key, record.json()["order"]) for record in h.published("invoices")] == [
            (b"a", 1),
            (b"c", 3),
        ]
        assert [letter.reason for letter in h.dlq("orders")] == ["decode"]


@pytest.mark.parametrize("function", BATCHES)
def test_too_few_results_fail_the_call(function: Callable[..., Any]) -> None:
    """Nothing of it is published; then each item is tried by itself, as after any error."""
    with Harness(batched(function)) as h:
        h.send("orders", Order(id=1, customer="short"))
        h.send("orders", Order(id=2))
        h.send("orders", Order(id=3))
        assert published(h) == [1, 2, 3]
        assert len(h.handled("orders")) == 3
    with Harness(batched(function, size=2)) as h:
        h.send("orders", Order(id=1, customer="none at all"))
        h.send("orders", Order(id=2))
        assert published(h) == [2]
        (record,) = h.parked("orders")
        assert record.error_type == "TypeError"
        assert record.error_message == (
            "a batch handler with to= returned 0 results: return a list with one result for each "
            "of its 1 item(s), None for those that have none"
        )


@pytest.mark.parametrize("function", BATCHES)
def test_a_batch_that_returns_no_list_has_failed(function: Callable[..., Any]) -> None:
    """A forgotten return is no way to publish nothing."""
    with Harness(batched(function, size=1)) as h:
        h.send("orders", Order(id=1, customer="nothing"))
        (record,) = h.parked("orders")
        assert record.error_type == "TypeError"
        assert record.error_message == (
            "a batch handler with to= returned NoneType: return a list with one result for each of "
            "its 1 item(s)"
        )
        assert h.published("invoices") == []


@pytest.mark.parametrize("function", BATCHES)
def test_of_a_batch_only_the_refused_results_fail(function: Callable[..., Any]) -> None:
    """What was confirmed is settled with its record; no other is published twice."""
    to = To("invoices", headers=lambda invoice: {"n": "" if invoice.customer == "ann" else 1 / 0})  # type: ignore[dict-item]
    with Harness(batched(function, to, size=4)) as h:
        for number, customer in ((1, "ann"), (2, "bob"), (3, "ann"), (4, "bob")):
            h.send("orders", Order(id=number, customer=customer))
        assert published(h) == [1, 3]
        assert [record.error_type for record in h.parked("orders")] == ["ZeroDivisionError"] * 2
        assert len(h.handled("orders")) == 2
        h.advance("2m")
        assert len(h.dlq("orders")) == 2
        assert published(h) == [1, 3]


@pytest.mark.parametrize("function", BATCHES)
def test_an_item_that_was_answered_has_no_result(function: Callable[..., Any]) -> None:
    """None is right; a result of it could not be confirmed before the answer, and is an error."""
    with Harness(batched(function)) as h:
        for number in range(1, 4):
            h.send("orders", Order(id=number, customer="discarded"))
        assert published(h) == [1, 3]
        assert len(h.discarded("orders")) == 1
    with Harness(batched(function)) as h:
        h.send("orders", Order(id=1, customer="answered"))
        for number in (2, 3):
            h.send("orders", Order(id=number))
        # The call has failed, and those that were not answered are tried again by themselves.
        assert published(h) == [3]


# Refusals.


def nothing(order: Order) -> None:
    """It has no results."""


def test_what_can_have_no_results_is_refused() -> None:
    """When it is declared, with the reason."""

    def manual(order: Order, delivery: Delivery) -> Invoice:
        raise NotImplementedError

    refused: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        (nothing, {}, "its return hint is None"),
        (manual, {"ack": "manual"}, "may come before its result is safe"),
        (returns, {"executor": "process"}, "a process handler has no producer"),
        (yields, {"batch": 10}, "a batch returns one result an item"),
        (returns, {"to": "orders"}, "it handles this topic"),
        (returns, {"to": "invoices--x--dlq"}, "'--' separates"),
        (returns, {"to": "in voices"}, "Kafka allows letters"),
        (returns, {"to": ""}, "empty"),
        (returns, {"to": 3}, "not where results go"),
        (returns, {"to": To("invoices", key=b"k")}, "not a function"),  # type: ignore[call-overload]
        (returns, {"to": To("invoices", headers={"a": 1})}, "not the headers of a record"),  # type: ignore[call-overload]
        (returns, {"to": To("invoices", headers="ab")}, "not the headers of a record"),  # type: ignore[call-overload]
        (returns, {"to": To("invoices", headers={"ackfloor.group": "x"})}, "parked records"),
        (returns, {"to": To("invoices", encoder=bytes)}, "encodes nothing"),  # type: ignore[call-overload]
    ]
    for function, options, says in refused:
        with pytest.raises(ConfigError, match=says) as raised:
            App("billing").handler("orders", **{"to": "invoices", **options})(function)
        assert f"handlers.{function.__name__}" in str(raised.value)


def test_a_misspelt_to_is_found() -> None:
    """As any option."""
    with pytest.raises(ConfigError, match=r"did you mean to=\?"):
        App("billing").handler("orders", too="invoices")(returns)  # type: ignore[call-arg]


def test_a_wrapped_generator_is_seen() -> None:
    """A plain wrapper would return it unread, and publish nothing."""

    @functools.wraps(yields)
    def wrapper(order: Order) -> Any:
        return yields(order)

    with pytest.raises(ConfigError, match="a decorator's `def` around a `def` that yields"):
        App("billing").handler("orders", to="invoices")(wrapper)
    with pytest.raises(ConfigError, match=r'a generator: .* write to="invoices"'):
        App("billing").handler("orders")(wrapper)
