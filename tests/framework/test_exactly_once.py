"""`output="exactly_once"`: as a user's test in memory sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from ackfloor import App, ConfigError, DeadLetter, Delivery, Discard, RetryPolicy, To
from ackfloor.declare.exactly_once import with_transactions
from ackfloor.errors import OutputTooLarge
from ackfloor.schemas import JsonSchema
from ackfloor.settings import Settings
from ackfloor.testing import Harness

ONCE: Any = {"output": "exactly_once"}
LETTERS = "pass 1 to 249 of the letters a-z and A-Z, digits, '.', '_' and '-'"
NO_PARTITION = "pass the number of a partition of the topic, or None"
NO_HEADER = "is no header; pass a text as the name, and text, bytes or None"
SOON = RetryPolicy.fixed("1s", 1)


class Order(BaseModel):
    """What is handled."""

    id: int


async def publishes_async(order: Order, delivery: Delivery) -> None:
    """One invoice, on the event loop."""
    assert delivery.publish("invoices", {"order": order.id}, key="k", headers={"kind": "bill"})


def publishes(order: Order, delivery: Delivery) -> None:
    """The same on a thread."""
    assert delivery.publish("invoices", {"order": order.id}, key=b"k", headers=[("kind", b"bill")])


async def returns_async(order: Order) -> dict[str, int]:
    """The same as a result."""
    return {"order": order.id}


def returns(order: Order) -> dict[str, int]:
    """The same as a result, on a thread."""
    return {"order": order.id}


async def yields_async(order: Order) -> AsyncIterator[dict[str, int]]:
    """The same, yielded."""
    yield {"order": order.id}


def yields(order: Order) -> Iterator[dict[str, int]]:
    """The same, yielded on a thread."""
    yield {"order": order.id}


def batch(orders: list[Order], deliveries: list[Delivery]) -> None:
    """The same for several at once."""
    for order, delivery in zip(orders, deliveries, strict=True):
        delivery.publish("invoices", {"order": order.id}, key="k", headers={"kind": "bill"})


async def batch_returns(orders: list[Order]) -> list[dict[str, int]]:
    """The same as the results of several."""
    return [{"order": order.id} for order in orders]


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The options that a function needs."""
    options: dict[str, Any] = dict(ONCE)
    if function in (returns_async, returns, yields_async, yields, batch_returns):
        options["to"] = To("invoices", key=lambda _: "k", headers={"kind": "bill"})
    if function in (batch, batch_returns):
        options |= {"batch": 2, "batch_wait": "100ms"}
    return options


KINDS = [
    publishes_async, publishes, returns_async, returns, yields_async, yields, batch, batch_returns
]  # fmt: skip


@pytest.mark.parametrize("function", KINDS)
def test_what_a_handler_publishes_is_there_with_its_acknowledgement(
    function: Callable[..., Any],
) -> None:
    """Key, headers and value are as for `app.publish`; the records are handled and committed."""
    app = App("billing")
    app.handler("orders", **options_of(function))(function)
    with Harness(app) as h:
        for number in range(3):
            h.send("orders", Order(id=number))
        h.advance("2s")
        seen = h.published("invoices")
        assert [record.json() for record in seen] == [{"order": number} for number in range(3)]
        assert {(record.key, record.headers) for record in seen} == {(b"k", (("kind", b"bill"),))}
        assert len(h.handled("orders")) == 3
        assert h.committed("orders") == 3
        assert h.errors == []


@pytest.mark.parametrize("raised", [ValueError("no"), DeadLetter("no"), Discard("no")])
def test_what_an_attempt_that_fails_has_published_is_dropped(raised: Exception) -> None:
    """Only what is handled publishes; its redelivery publishes for itself."""
    app = App("billing")

    @app.handler("orders", retry=SOON, **ONCE)
    async def bill(order: Order, delivery: Delivery) -> None:
        delivery.publish("invoices", str(delivery.attempt))
        if delivery.attempt == 1:
            raise raised

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.advance("3s")
        values = [record.value for record in h.published("invoices")]
        assert values == ([b"2"] if isinstance(raised, ValueError) else [])


def test_under_manual_ack_what_was_published_before_the_answer_goes_with_it() -> None:
    """What comes after it is not taken, and says so."""
    app = App("billing")
    after: list[bool] = []

    @app.handler("orders", ack="manual", **ONCE)
    async def bill(order: Order, delivery: Delivery) -> None:
        delivery.publish("invoices", "before")
        delivery.ack()
        after.append(delivery.publish("invoices", "after"))

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert [record.value for record in h.published("invoices")] == [b"before"]
        assert after == [False]


def test_in_a_batch_each_output_belongs_to_its_delivery() -> None:
    """One item fails, and those of the others are there."""
    app = App("billing")

    @app.handler("orders", batch=3, batch_wait="100ms", retry=SOON, **ONCE)
    async def bill(orders: list[Order], deliveries: list[Delivery]) -> None:
        for order, delivery in zip(orders, deliveries, strict=True):
            delivery.publish("invoices", str(order.id))
            if order.id == 1:
                delivery.dead_letter("no")

    with Harness(app) as h:
        for number in range(3):
            h.send("orders", Order(id=number))
        h.advance("1s")
        assert [record.value for record in h.published("invoices")] == [b"0", b"2"]
        assert len(h.dlq("orders")) == 1


def test_too_large_outputs_fail_their_record() -> None:
    """As the exception that they raise."""
    app = App("billing")

    @app.handler("orders", retry=RetryPolicy(max_redeliveries=0), **ONCE)
    async def bill(order: Order, delivery: Delivery) -> None:
        delivery.publish("invoices", "small")
        delivery.publish("invoices", b"x" * 2**25)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert h.published("invoices") == []
        (dead,) = h.dlq("orders")
        assert dead.error_type == "ackfloor.core.records.output.OutputTooLarge"


def test_a_handler_that_hides_that_they_are_too_large_fails_as_well() -> None:
    """Or what it published before would be missing in silence."""
    app = App("billing")

    @app.handler("orders", **ONCE)
    async def bill(order: Order, delivery: Delivery) -> None:
        with pytest.raises(OutputTooLarge):
            delivery.publish("invoices", b"x" * 2**25)

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert [dead.error_type for dead in h.dlq("orders")] == ["OutputTooLarge"]


@pytest.mark.parametrize("how", ["publish", "publish_sync"])
def test_app_publish_is_refused_in_such_a_handler(how: str) -> None:
    """With the reason and the fix; another handler of the app may use it."""
    app = App("billing")
    told: list[str] = []

    @app.handler("orders", **ONCE)
    async def bill(order: Order) -> None:
        published = (
            app.publish("invoices", "no")
            if how == "publish"
            else asyncio.to_thread(app.publish_sync, "invoices", "no")
        )
        with pytest.raises(RuntimeError) as refused:
            await published
        told.append(str(refused.value))

    @app.handler("others")
    async def other(order: Order) -> None:
        await app.publish("invoices", "yes")

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        h.send("others", Order(id=1))
        assert [record.value for record in h.published("invoices")] == [b"yes"]
    (text,) = told
    assert text == (
        "handler 'bill' has output=\"exactly_once\", and app.publish would write to 'invoices' "
        "again where its record is handled again: use `delivery.publish('invoices', ...)`"
    )


def test_a_handler_without_the_option_publishes_nothing_through_its_delivery() -> None:
    """It is told what to do."""
    app = App("billing")

    @app.handler("orders", retry=RetryPolicy(max_redeliveries=0))
    async def bill(order: Order, delivery: Delivery) -> None:
        delivery.publish("invoices", "x")

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        (dead,) = h.dlq("orders")
        assert dead.error_message == (
            "handler 'bill' does not publish through its deliveries: register it with "
            'output="exactly_once", or use `await app.publish(...)`'
        )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        *(
            (
                {"topic": name},
                f"delivery.publish(topic={name!r}): no topic has that name; {LETTERS}",
            )
            for name in ("", "..", "in voices", "a\0b", "\ud800", "x" * 250)
        ),
        ({"topic": None}, "delivery.publish(topic=None): pass the name of a topic"),
        ({"key": 7}, "delivery.publish(key=7): pass bytes, text or None"),
        ({"partition": "0"}, "delivery.publish(partition='0'): pass a number, or None"),
        ({"partition": True}, "delivery.publish(partition=True): pass a number, or None"),
        ({"partition": -1}, f"delivery.publish(partition=-1): {NO_PARTITION}"),
        ({"partition": 2**31}, f"delivery.publish(partition=2147483648): {NO_PARTITION}"),
        ({"headers": {b"kind": b"x"}}, f"delivery.publish(headers): b'kind': b'x' {NO_HEADER}"),
        ({"headers": [("kind", 0)]}, f"delivery.publish(headers): 'kind': 0 {NO_HEADER}"),
        (
            {"headers": {"a\0": b""}},
            "delivery.publish(headers): 'a\\x00' can't be the name of a header",
        ),
        (
            {"headers": {"\ud800": b""}},
            "delivery.publish(headers): '\\ud800' can't be the name of a header",
        ),
    ],
)
def test_what_is_no_record_is_refused_in_the_call(given: dict[str, Any], told: str) -> None:
    """Not when it is written, where nobody could be told."""
    app = App("billing")
    seen: list[str] = []

    @app.handler("orders", **ONCE)
    async def bill(order: Order, delivery: Delivery) -> None:
        with pytest.raises((TypeError, ValueError)) as refused:
            delivery.publish(**{"topic": "invoices", "value": "x"} | given)
        seen.append(str(refused.value))

    with Harness(app) as h:
        h.send("orders", Order(id=1))
        assert h.published("invoices") == []
    assert seen == [told]


def test_it_implies_transactional_parking() -> None:
    """The opposite is refused where somebody asks for it."""
    app = App("billing")
    app.handler("orders", **ONCE)(publishes)
    settings = Settings.from_code({"app": {"group": "billing"}})
    assert not settings.app.transactional
    assert with_transactions(settings, app.handlers).app.transactional
    assert with_transactions(settings, ()) is settings
    asked = Settings.from_code({"app": {"group": "billing", "parking": "at_least_once"}})
    with pytest.raises(ConfigError) as refused:
        with_transactions(asked, app.handlers)
    assert str(refused.value).startswith(
        "app.parking='at_least_once': handler 'publishes' has output=\"exactly_once\", which "
        "writes in transactions; leave it out"
    )


def test_what_it_can_not_be_combined_with_is_refused() -> None:
    """In the line of the registration."""
    app = App("billing")
    with pytest.raises(ConfigError, match=r"handlers\.returns\.output=.*registry"):
        app.handler("orders", to=To("invoices", encoder=JsonSchema()), **ONCE)(returns)
    with pytest.raises(ConfigError, match=r"output='twice': no such choice"):
        app.handler("orders", output="twice")(publishes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nothing is committed in broadcast mode"):
        App("billing", mode="broadcast").handler("orders", **ONCE)(publishes)
