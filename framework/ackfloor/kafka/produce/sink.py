"""KafkaSink: parks records durably; implements `ports.Sink`.

Every write ends in exactly one report: confirmed by all in-sync replicas, or failed. An exception
of `produce` is a failed write like any other; a write without a report when the sink closes counts
as failed. A producer with a fatal error refuses everything from then on, so it is discarded, its
outstanding writes are reported as failed, and a new one takes its place.

A broker refuses a batch that is over the topic's limit as a whole, including records that would
fit, and the client does not split it. So a write that was refused for its size is sent again in a
request of its own before it counts as too large: else it would lose headers because of its
neighbours, and a topic with a small limit would accept nothing at all.

Confirmations come by the hundred, so those of a poll are reported together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.kafka.client.client_errors import TOO_LARGE, error_text, is_fatal, kafka_error
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import (
    ONE_PER_REQUEST,
    KafkaOptions,
    make_client,
    producer_config,
)
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.ports import SinkListener

log = logging.getLogger("ackfloor.kafka")

#: librdkafka's "unassigned": the partitioner chooses.
PARTITION_UA = -1

#: What `produce` raises if the client does not accept a write.
REFUSED = (BufferError, KafkaException, ValueError, TypeError, OverflowError)


def produce(
    producer: Producer,
    write: PendingWrite,
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> None:
    """Queue a write in a producer; raises one of `REFUSED`."""
    producer.produce(
        write.topic,
        value=write.value,
        key=write.key,
        headers=list(write.headers),
        on_delivery=on_delivery,
        partition=PARTITION_UA if write.partition is None else write.partition,
    )


class KafkaSink:
    """Writes parked records with an idempotent producer.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = producer_config(options)
        self._listener: SinkListener
        self._producer: Producer | None = None
        #: Sends each record in a request of its own; made when it is first needed.
        self._single: Producer | None = None
        self._outstanding: dict[int, PendingWrite] = {}
        #: Confirmed, and reported at the end of the poll that has learnt of them.
        self._confirmed: list[PendingWrite] = []
        self._fatal = ""

    def open(self, listener: SinkListener) -> None:
        """Get ready to write."""
        self._listener = listener
        self._producer = self._make()

    def _make(self, **extra: object) -> Producer:
        # Log lines wait in memory for the next poll, and an idle sink is not polled; the consumer
        # logs that brokers go and come back.
        logger = ClientLog(log, "producer of retries and dead letters")
        config = {"log_level": 2, **self._config, **extra}
        return make_client(Producer, "producer", config, logger=logger)

    def publish(self, write: PendingWrite) -> None:
        """Start a write."""
        if self._fatal:
            self._replace()
        if self._producer is None:
            self._listener.on_publish_failed(write, "the worker is closing", too_large=False)
            return
        self._outstanding[id(write)] = write
        self._produce(self._producer, write)

    def _produce(self, producer: Producer, write: PendingWrite, *, alone: bool = False) -> None:
        try:
            produce(producer, write, partial(self._delivered, write, alone=alone))
        except REFUSED as exc:
            self._report(write, error_text(exc), kafka_error(exc))

    def _delivered(
        self,
        write: PendingWrite,
        error: KafkaError | None,
        message: Message,
        *,
        alone: bool = False,
    ) -> None:
        error = failure(error, message)
        if error is None:
            if self._outstanding.pop(id(write), None) is not None:
                self._confirmed.append(write)
        elif error.code() in TOO_LARGE and not alone and id(write) in self._outstanding:
            if self._single is None:
                self._single = self._make(**ONE_PER_REQUEST)
            self._produce(self._single, write, alone=True)
        else:
            self._report(write, error_text(error), error)

    def _report(self, write: PendingWrite, text: str, error: KafkaError | None) -> None:
        if self._outstanding.pop(id(write), None) is None:
            return
        if is_fatal(error):
            self._fatal = text
        too_large = error is not None and error.code() in TOO_LARGE
        self._listener.on_publish_failed(write, text, too_large=too_large)

    def poll(self) -> None:
        """Report the writes that were confirmed or have failed, without waiting."""
        if self._producer is None:
            return
        self._producer.poll(0)
        if self._single is not None:
            self._single.poll(0)
        self._report_confirmed()
        if self._fatal:
            self._replace()

    def _report_confirmed(self) -> None:
        if self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            self._listener.on_published(confirmed)

    def _replace(self) -> None:
        text = "the producer of retries and dead letters had a fatal error (%s); making a new one"
        log.error(text, self._fatal)
        self._fatal = ""
        self._fail_outstanding("the producer was replaced")
        for old in (self._producer, self._single):
            if old is not None:
                # Its outstanding writes were reported as failed.
                old.purge(blocking=False)
        self._producer, self._single = self._make(), None

    def _fail_outstanding(self, why: str) -> None:
        outstanding, self._outstanding = self._outstanding, {}
        for write in outstanding.values():
            self._listener.on_publish_failed(write, why, too_large=False)

    def pending(self) -> int:
        """How many writes have no report yet."""
        return len(self._outstanding) + len(self._confirmed)

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding reports, then stop."""
        if self._producer is not None:
            until_s = time.monotonic() + timeout_s
            self._producer.flush(timeout_s)
            if self._single is not None:
                self._single.flush(max(0.0, until_s - time.monotonic()))
            self._producer = self._single = None
            self._report_confirmed()
            self._fail_outstanding("not confirmed before the worker closed")
