"""KafkaPublisher: `App.publish`; implements `ports.Publisher`.

Producers of its own with a thread each, so that a handler that waits for a confirmation never
waits for the owner thread, which may be waiting for that handler in a revoke.

As in the sink, a record that was refused for its size goes once more, alone (a broker refuses a
batch as a whole), and a producer that failed for good is replaced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor.core.records.record import Headers
from ackfloor.errors import PublishFailed
from ackfloor.kafka.client.client_errors import TOO_LARGE, error_text, is_fatal, kafka_error
from ackfloor.kafka.client.client_options import (
    ONE_PER_REQUEST,
    KafkaOptions,
    make_client,
    producer_config,
)
from ackfloor.kafka.produce.delivery_reports import failure

log = logging.getLogger("ackfloor.kafka")

POLL_S = 0.1


class _Order(NamedTuple):
    """One record to write, and who waits for it."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers
    on_done: Callable[[BaseException | None], None]


class _Lane:
    """One producer and the thread that takes its delivery reports."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.producer = make_client(Producer, "producer", config, logger=log)
        self._dismissed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="ackfloor:publish", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._dismissed.is_set():
            self.producer.poll(POLL_S)
        # Whoever still waits is told: at the latest after the delivery timeout.
        while len(self.producer):
            self.producer.poll(POLL_S)

    def dismiss(self) -> None:
        """End the thread once every report is in."""
        self._dismissed.set()

    def close(self, timeout_s: float) -> int:
        """Wait for outstanding reports; returns how many are missing."""
        self.dismiss()
        self.producer.flush(timeout_s)
        return len(self.producer)


class KafkaPublisher:
    """Publishes records with an idempotent producer; callable from any thread.

    Producers are made when they are first needed.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = producer_config(options)
        self._lock = threading.Lock()
        #: Whether records go alone -> the lane.
        self._lanes: dict[bool, _Lane] = {}
        self._closing = False

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        """Start writing one record; see `ports.Publisher`."""
        self._produce(_Order(topic, value, key, headers, on_done), single=False)

    def _produce(self, order: _Order, *, single: bool) -> None:
        lane = self._lane(single)
        if lane is None:
            order.on_done(PublishFailed(f"{order.topic}: the worker has closed"))
            return
        try:
            lane.producer.produce(
                order.topic,
                value=order.value,
                key=order.key,
                headers=list(order.headers),
                on_delivery=partial(self._delivered, order, lane, single),
            )
        except (BufferError, KafkaException, ValueError, TypeError) as exc:
            self._failed(order, lane, kafka_error(exc), error_text(exc))

    def _lane(self, single: bool) -> _Lane | None:
        with self._lock:
            if self._closing:
                return None
            if single not in self._lanes:
                config = {**self._config, **ONE_PER_REQUEST} if single else self._config
                self._lanes[single] = _Lane(config)
            return self._lanes[single]

    def _delivered(
        self, order: _Order, lane: _Lane, single: bool, error: KafkaError | None, message: Message
    ) -> None:
        error = failure(error, message)
        if error is None:
            order.on_done(None)
        elif error.code() in TOO_LARGE and not single:
            self._produce(order, single=True)
        else:
            self._failed(order, lane, error, error_text(error))

    def _failed(self, order: _Order, lane: _Lane, error: KafkaError | None, why: str) -> None:
        if is_fatal(error):
            with self._lock:
                self._lanes = {single: kept for single, kept in self._lanes.items() if kept != lane}
            lane.dismiss()
            log.error("a publishing producer failed for good (%s); making a new one", why)
        order.on_done(PublishFailed(f"{order.topic}: {why}"))

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding confirmations, then stop."""
        with self._lock:
            self._closing = True
            lanes, self._lanes = self._lanes, {}
        until_s = time.monotonic() + timeout_s
        left = sum(lane.close(max(0.0, until_s - time.monotonic())) for lane in lanes.values())
        if left:
            log.warning("%d published records were not confirmed at the end", left)
