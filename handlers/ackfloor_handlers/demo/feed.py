"""Feeding the source topic: every order produced, confirmed, and written into the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from ackfloor_handlers.demo.errors import DemoFailed
from ackfloor_handlers.demo.facts import Ledger, Origin
from ackfloor_handlers.demo.seed import Order
from ackfloor_handlers.demo.topics import SOURCE, client_settings

_CHUNK = 500
_FLUSH_S = 60.0


def produce(
    bootstrap_servers: str, orders: Sequence[Order], progress: Callable[[int], None]
) -> Ledger:
    """Produce all orders; returns where each of them is.

    Args:
        bootstrap_servers: the broker.
        orders: what to produce.
        progress: is told now and then how many were confirmed so far.

    Raises:
        DemoFailed: the broker did not confirm one.
    """
    producer = Producer(
        {**client_settings(bootstrap_servers), "enable.idempotence": True, "linger.ms": 5}
    )
    ledger: dict[Origin, Order] = {}
    refused: list[str] = []
    for at in range(0, len(orders), _CHUNK):
        for order in orders[at : at + _CHUNK]:
            producer.produce(
                SOURCE,
                value=order.value,
                key=order.key,
                headers=list(order.headers),
                on_delivery=partial(_confirmed, ledger, refused, order),
            )
        producer.poll(0)
        progress(len(ledger))
    producer.flush(_FLUSH_S)
    progress(len(ledger))
    if refused or len(ledger) < len(orders):
        why = refused[0] if refused else f"no answer within {_FLUSH_S:g} s"
        raise DemoFailed(f"{len(ledger)} of {len(orders)} orders were confirmed: {why}")
    return ledger


def _confirmed(
    ledger: dict[Origin, Order],
    refused: list[str],
    order: Order,
    error: KafkaError | None,
    message: Message,
) -> None:
    if error is not None:
        refused.append(error.str())
        return
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    ledger[Origin(partition, offset)] = order
