"""Billing orders: the app of the demo, and a template to copy.

It shows a pydantic model, order kept per customer (the record's key) without one bad order
holding back its customer's next, a business error that goes straight to the dead-letter queue,
a transient error that the policy retries, a consume timeout for a provider that hangs, and a
receipt published before the order counts as handled.

Run `python -m ackfloor_handlers.orders` to try it without a broker, `ackfloor demo` for all of it.
"""

from __future__ import annotations

import time

from pydantic import BaseModel

from ackfloor import App, Delivery, Origin, RetryPolicy
from ackfloor_handlers.payments import charge

TOPIC = "orders"
RECEIPTS = "receipts"

#: Short on purpose, so that the demo sees the whole path: two tiers, then the DLQ.
POLICY = RetryPolicy(initial_delay="500ms", multiplier=2, max_delay="1s", max_redeliveries=2)
CONSUME_TIMEOUT = "2s"
#: What runs when a worker is killed is tried one by one afterwards, and each order that is stuck
#: takes its whole timeout: with three times the slots the demo waited a minute for those.
CONCURRENCY = 40


class Order(BaseModel):
    """A record of the topic."""

    id: int
    customer: str
    cents: int
    card: str


class Receipt(BaseModel):
    """What was billed, and in which delivery.

    The origin names the order however often it is delivered; the delivered record may be one of a
    retry topic.
    """

    order: int
    origin: Origin
    delivered: Origin
    attempt: int
    started_ms: int
    due_ms: int | None


class InvalidOrder(Exception):
    """The order can't be billed, now or ever."""


app = App(group="billing")


@app.handler(
    TOPIC,
    ordering="key",
    on_failure="park",
    concurrency=CONCURRENCY,
    consume_timeout=CONSUME_TIMEOUT,
    retry=POLICY,
    dead_letter_on=(InvalidOrder,),
)
async def bill(order: Order, delivery: Delivery) -> None:
    """Charge the card and publish the receipt; returning settles the order."""
    started_ms = time.time_ns() // 1_000_000
    if order.cents <= 0:
        raise InvalidOrder(f"order {order.id} bills {order.cents} cents")
    await charge(order.card, delivery.attempt)
    receipt = Receipt(
        order=order.id,
        origin=delivery.origin,
        delivered=Origin(delivery.topic, delivery.partition, delivery.offset),
        attempt=delivery.attempt,
        started_ms=started_ms,
        due_ms=due_ms(delivery),
    )
    await app.publish(RECEIPTS, receipt, key=str(order.id))


def due_ms(delivery: Delivery) -> int | None:
    """When a redelivery was due, in wall-clock ms; None for a first delivery."""
    for name, value in reversed(delivery.headers):
        if name == "ackfloor.not_before" and value is not None:
            return int(value)
    return None


if __name__ == "__main__":
    from ackfloor.testing import Harness

    with Harness(app) as h:
        h.send(TOPIC, Order(id=1, customer="ada", cents=500, card="ok"), key="ada")
        h.send(TOPIC, Order(id=2, customer="ada", cents=-1, card="ok"), key="ada")
        h.send(TOPIC, Order(id=3, customer="bob", cents=700, card="flaky-2"), key="bob")
        h.send(TOPIC, b"not an order", key="eve")
        h.advance("10s")
        print(f"billed: {[record.json()['id'] for record in h.handled(TOPIC)]}")
        for dead_letter in h.dlq(TOPIC):
            print(f"dead letter: {dead_letter.reason}: {dead_letter.error_message}")
