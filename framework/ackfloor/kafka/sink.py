"""KafkaSink: parks records durably; implements `ports.Sink`.

Every parcel ends in exactly one report: confirmed by all in-sync replicas, or failed. What
`produce` raises is a failed park like any other; a report that has not come when the sink closes
counts as failed. A producer with a fatal error refuses everything from then on, so it is
discarded, its outstanding parcels are reported as failed, and a new one takes its place.
"""

from __future__ import annotations

import logging
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor.core.parcel import Parcel
from ackfloor.kafka.errors import FATAL, TOO_LARGE, kafka_error, told
from ackfloor.kafka.options import KafkaOptions, producer_config
from ackfloor.ports import SinkListener

log = logging.getLogger("ackfloor.kafka")

#: librdkafka's "unassigned": the partitioner chooses.
PARTITION_UA = -1


class KafkaSink:
    """Writes parcels with an idempotent producer.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._config = producer_config(options)
        self._listener: SinkListener
        self._producer: Producer | None = None
        self._outstanding: dict[int, Parcel] = {}
        self._fatal = ""

    def open(self, listener: SinkListener) -> None:
        """Make ready to write."""
        self._listener = listener
        self._producer = Producer(self._config, logger=log)

    def publish(self, parcel: Parcel) -> None:
        """Start writing a parcel."""
        producer = self._producer
        if producer is None:
            self._listener.on_publish_failed(parcel, "the worker is closing", too_large=False)
            return
        record = parcel.delivery.record
        self._outstanding[id(parcel)] = parcel
        try:
            producer.produce(
                parcel.topic,
                value=record.value(),
                key=record.key(),
                headers=list(parcel.headers),
                on_delivery=partial(self._delivered, parcel),
                partition=PARTITION_UA if parcel.partition is None else parcel.partition,
            )
        except (BufferError, KafkaException, ValueError, TypeError) as exc:
            error = kafka_error(exc)
            self._report(parcel, told(exc), error)

    def _delivered(self, parcel: Parcel, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            if self._outstanding.pop(id(parcel), None) is not None:
                self._listener.on_published(parcel)
            return
        self._report(parcel, told(error), error)

    def _report(self, parcel: Parcel, text: str, error: KafkaError | None) -> None:
        if self._outstanding.pop(id(parcel), None) is None:
            return
        if error is not None and (error.fatal() or error.code() == FATAL):
            self._fatal = text
        too_large = error is not None and error.code() in TOO_LARGE
        self._listener.on_publish_failed(parcel, text, too_large=too_large)

    def poll(self) -> None:
        """Report what has been confirmed or has failed, without waiting."""
        if self._producer is None:
            return
        self._producer.poll(0)
        if self._fatal:
            self._replace()

    def _replace(self) -> None:
        log.error("the parking producer failed for good (%s); making a new one", self._fatal)
        self._fatal = ""
        self._fail_outstanding("the producer was replaced")
        self._producer = Producer(self._config, logger=log)

    def _fail_outstanding(self, why: str) -> None:
        outstanding, self._outstanding = self._outstanding, {}
        for parcel in outstanding.values():
            self._listener.on_publish_failed(parcel, why, too_large=False)

    def pending(self) -> int:
        """Parcels whose report is outstanding."""
        return len(self._outstanding)

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding reports, then stop."""
        if self._producer is not None:
            self._producer.flush(timeout_s)
            self._producer = None
            self._fail_outstanding("not confirmed before the worker closed")
