"""Produces the orders at a steady rate, and records in a ledger where each was confirmed.

It has its own thread, so that orders keep coming whatever happens to the workers; while the broker
is away they wait in the client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor_handlers.demo.account.facts import Ledger, Origin
from ackfloor_handlers.demo.demo_errors import DemoFailed
from ackfloor_handlers.demo.demo_topics import SOURCE, client_settings
from ackfloor_handlers.demo.seeded_orders import Order

_TICK_S = 0.02
_FLUSH_S = 60.0


class Feed:
    """Produces the orders while the block is entered.

    Args:
        bootstrap_servers: the broker.
        orders: what to produce, in this order.
        rate: orders a second; 0 for all at once.
    """

    def __init__(self, bootstrap_servers: str, orders: Sequence[Order], rate: int) -> None:
        self._orders = orders
        self._rate = rate
        self._producer = Producer(
            {**client_settings(bootstrap_servers), "enable.idempotence": True, "linger.ms": 5}
        )
        self._ledger: dict[Origin, Order] = {}
        self._refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ackfloor-demo-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def confirmed(self) -> int:
        """How many orders the broker has confirmed."""
        return len(self._ledger)

    def finished(self) -> bool:
        """Whether all are produced; raises DemoFailed where one was refused."""
        if self._refused:
            raise DemoFailed(f"the broker did not take an order: {self._refused[0]}")
        return self.confirmed == len(self._orders)

    def ledger(self) -> Ledger:
        """Where each order is."""
        return dict(self._ledger)

    def _run(self) -> None:
        try:
            self._produce()
        except (KafkaException, BufferError) as exc:
            self._refused.append(str(exc))
        finally:
            self._finish()

    def _produce(self) -> None:
        started_s = time.monotonic()
        sent = 0
        while sent < len(self._orders) and not self._stop.is_set():
            due = int((time.monotonic() - started_s) * self._rate) if self._rate else sent + 500
            for order in self._orders[sent:due]:
                self._producer.produce(
                    SOURCE,
                    value=order.value,
                    key=order.key,
                    headers=list(order.headers),
                    on_delivery=partial(self._confirm, order),
                )
            sent = max(sent, min(due, len(self._orders)))
            self._producer.poll(_TICK_S if self._rate else 0)

    def _finish(self) -> None:
        """Wait for the last confirmations, unless the block has ended."""
        give_up_s = time.monotonic() + _FLUSH_S
        while len(self._producer) and not self._stop.is_set():
            self._producer.poll(_TICK_S)
            if time.monotonic() > give_up_s:
                self._refused.append(f"no answer within {_FLUSH_S:g} s")
                return
        if self._stop.is_set():
            self._producer.purge()
            self._producer.poll(0)

    def _confirm(self, order: Order, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error.str())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._ledger[Origin(partition, offset)] = order
