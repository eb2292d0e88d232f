"""KafkaPublisher: `App.publish`; implements `ports.Publisher`.

A producer of its own with a thread of its own, so that a handler that waits for a confirmation
never waits for the owner thread, which may be waiting for that handler in a revoke.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor.core.model import Headers
from ackfloor.errors import PublishFailed
from ackfloor.kafka.errors import told
from ackfloor.kafka.options import KafkaOptions, producer_config

log = logging.getLogger("ackfloor.kafka")

POLL_S = 0.1


class KafkaPublisher:
    """Publishes records with an idempotent producer; callable from any thread.

    The producer is made by the first `publish`.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = producer_config(options)
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        """Start writing one record; see `ports.Publisher`."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            on_done(None if error is None else PublishFailed(f"{topic}: {told(error)}"))

        try:
            self._open().produce(
                topic, value=value, key=key, headers=list(headers), on_delivery=delivered
            )
        except (BufferError, KafkaException, ValueError, TypeError) as exc:
            on_done(PublishFailed(f"{topic}: {told(exc)}"))

    def _open(self) -> Producer:
        with self._lock:
            if self._closing.is_set():
                raise ValueError("the worker has closed")
            if self._producer is None:
                self._producer = Producer(self._config, logger=log)
                self._thread = threading.Thread(
                    target=self._serve, args=(self._producer,), name="ackfloor:publish", daemon=True
                )
                self._thread.start()
            return self._producer

    def _serve(self, producer: Producer) -> None:
        while not self._closing.is_set():
            producer.poll(POLL_S)

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding confirmations, then stop."""
        with self._lock:
            self._closing.set()
            producer, thread = self._producer, self._thread
        if producer is not None and thread is not None:
            thread.join()
            left = producer.flush(timeout_s)
            if left:
                log.warning("%d published records were not confirmed at the end", left)
