"""KafkaPublisher: `App.publish`; implements `ports.Publisher`.

It has producers of its own, each with a thread, so that a handler that waits for a confirmation
never waits for the owner thread, which may be waiting for that handler in a revoke.

As in the sink, a record that was refused for its size is sent again in a request of its own (a
broker refuses a batch as a whole), and a producer with a fatal error is replaced.
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
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import (
    ONE_PER_REQUEST,
    KafkaOptions,
    make_client,
    producer_config,
)
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.kafka.produce.sink import PARTITION_UA

log = logging.getLogger("ackfloor.kafka")

POLL_S = 0.1
#: How long the reports of what was given up may take; they are made by the client itself.
PURGE_S = 1.0
#: The errors of a record that was given up at the end.
_GIVEN_UP = {
    KafkaError._PURGE_QUEUE: "not confirmed before the end, and never sent",  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT: "not confirmed before the end; perhaps written",  # noqa: SLF001
}


class _Order(NamedTuple):
    """One record to write, and the callback for its result."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers
    on_done: Callable[[BaseException | None], None]
    partition: int | None = None


class _PolledProducer:
    """One producer and the thread that takes its delivery reports."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        logger = ClientLog(log, "producer of app.publish")
        self.producer = make_client(Producer, "producer", config, logger=logger)
        #: The topics of the records that were given up at the end.
        self.given_up: list[str] = []
        self._dismissed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="ackfloor:publish", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._dismissed.is_set():
            self.producer.poll(POLL_S)
        # The remaining reports come after the delivery timeout at the latest.
        while len(self.producer):
            self.producer.poll(POLL_S)

    def dismiss(self) -> None:
        """End the thread once every report has come."""
        self._dismissed.set()

    def close(self, timeout_s: float) -> int:
        """Wait for outstanding reports; returns how many did not come, which have failed."""
        self.dismiss()
        # What is left may be lines of the client's log as well.
        if self.producer.flush(timeout_s):
            # Reports the records as failed: whoever waits for one is told.
            self.producer.purge()
            self.producer.flush(PURGE_S)
        return len(self.given_up)


class KafkaPublisher:
    """Publishes records with an idempotent producer; callable from any thread.

    Producers are made when they are first needed.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = producer_config(options)
        self._lock = threading.Lock()
        #: Whether it sends each record in a request of its own -> the producer.
        self._producers: dict[bool, _PolledProducer] = {}
        self._closing = False

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Start writing one record; see `ports.Publisher`."""
        order = _Order(topic, value, key, headers, on_done, partition)
        self._produce(order, single=False)

    def _produce(self, order: _Order, *, single: bool) -> None:
        polled = self._producer_of(single)
        if polled is None:
            order.on_done(PublishFailed(f"{order.topic}: the publisher has closed"))
            return
        try:
            polled.producer.produce(
                order.topic,
                value=order.value,
                key=order.key,
                headers=list(order.headers),
                on_delivery=partial(self._delivered, order, polled, single),
                partition=PARTITION_UA if order.partition is None else order.partition,
            )
        except (BufferError, KafkaException, ValueError, TypeError) as exc:
            self._failed(order, polled, kafka_error(exc), error_text(exc))

    def _producer_of(self, single: bool) -> _PolledProducer | None:
        with self._lock:
            if self._closing:
                return None
            if single not in self._producers:
                config = {**self._config, **ONE_PER_REQUEST} if single else self._config
                self._producers[single] = _PolledProducer(config)
            return self._producers[single]

    def _delivered(
        self,
        order: _Order,
        polled: _PolledProducer,
        single: bool,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        error = failure(error, message)
        if error is None:
            order.on_done(None)
        elif error.code() in TOO_LARGE and not single:
            self._produce(order, single=True)
        else:
            given_up = _GIVEN_UP.get(error.code())
            if given_up is not None:
                polled.given_up.append(order.topic)
            self._failed(order, polled, error, given_up or error_text(error))

    def _failed(
        self, order: _Order, polled: _PolledProducer, error: KafkaError | None, why: str
    ) -> None:
        if is_fatal(error):
            with self._lock:
                self._producers = {
                    single: kept for single, kept in self._producers.items() if kept != polled
                }
            polled.dismiss()
            log.error("the producer of app.publish had a fatal error (%s); making a new one", why)
        order.on_done(PublishFailed(f"{order.topic}: {why}"))

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding confirmations, then stop."""
        with self._lock:
            self._closing = True
            producers, self._producers = self._producers, {}
        until_s = time.monotonic() + timeout_s
        left = sum(
            polled.close(max(0.0, until_s - time.monotonic())) for polled in producers.values()
        )
        if left:
            log.warning("%d published records were not confirmed at the end", left)
