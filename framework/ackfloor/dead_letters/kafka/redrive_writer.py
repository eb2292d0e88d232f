"""RedriveWriter: one transactional id, under which records and their dispositions are written.

A transaction is written as a whole or not at all, and a reader of committed records sees it so.
After every failure the producer is discarded, and the next one must `take` the id, which commits or
aborts what the old one left open. Which of the two is not guessed: the job reads the dispositions
again. This holds for a record that is too large as well: an abort would do, but what librdkafka
2.16 writes after that is refused (OUT_OF_ORDER_SEQUENCE_NUMBER).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ackfloor.core.records.record import Headers
from ackfloor.errors import AckfloorError, RedriveRefused
from ackfloor.kafka.client.client_errors import (
    CLIENT_RAISES,
    FENCED,
    PURGED,
    TOO_LARGE,
    error_text,
    kafka_error,
)
from ackfloor.kafka.client.client_options import (
    KafkaOptions,
    make_client,
    transactional_config,
    whole_bytes,
)
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.kafka.produce.sink import PARTITION_UA

#: The client's own log lines are off: each failure is raised here.
quiet = logging.getLogger("ackfloor.dead_letters.kafka.redrive_job")
quiet.setLevel(logging.CRITICAL + 1)

REQUEST_S = 10.0
#: librdkafka's default, in bytes.
BATCH_SIZE = 1_000_000
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001


class NewRecord(NamedTuple):
    """A record to write; `partition` None lets the producer choose."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Superseded(AckfloorError):
    """Another job, or a cancel, has taken the transactional id."""


class TooLarge(Exception):
    """A record is larger than its topic allows; which one is not known unless it was alone."""


class Unwritten(Exception):
    """A transaction failed, or its end is not known; its records may have been written."""


class RedriveWriter:
    """Writes transactions under one id.

    Args:
        batch_bytes: what every topic written to takes as one batch; None where that is not known.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(
        self, options: KafkaOptions, transactional_id: str, batch_bytes: int | None = None
    ) -> None:
        config = transactional_config(options, transactional_id)
        if batch_bytes is not None:
            # Records that fit one by one would be refused as a batch.
            given = whole_bytes({"batch.size": BATCH_SIZE, **config}, "batch.size")
            config["batch.size"] = min(given, batch_bytes)
        self._config = {"log_level": 2, **config}
        self._id = transactional_id
        self._producer: Producer | None = None

    @property
    def ready(self) -> bool:
        """Whether the id is ours and nothing has failed since."""
        return self._producer is not None

    def take(self) -> None:
        """Take the id: the job that had it is fenced, and its open transaction is ended.

        Raises:
            Unwritten: not now.
            RedriveRefused: this user may not.
        """
        self.discard()
        producer = make_client(Producer, "producer", self._config, logger=quiet)
        try:
            producer.init_transactions(REQUEST_S)
        except KafkaException as exc:
            producer.purge()
            raise self._meaning(kafka_error(exc), error_text(exc)) from exc
        self._producer = producer

    def write(self, records: Sequence[NewRecord]) -> None:
        """Write these records, all or none.

        Raises:
            Superseded, TooLarge, RedriveRefused: none was written.
            Unwritten: it is not known. `take`, then read what is there.
        """
        assert self._producer is not None
        producer, self._producer = self._producer, None
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            error = failure(error, message)
            if error is not None and error.code() not in PURGED:
                failed.append(error)

        until_s = time.monotonic() + REQUEST_S
        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=PARTITION_UA if record.partition is None else record.partition,
                    on_delivery=delivered,
                )
            unsent = producer.flush(REQUEST_S)
            if not failed and not unsent:
                producer.commit_transaction(max(1.0, until_s - time.monotonic()))
        except (*CLIENT_RAISES, BufferError) as exc:
            producer.purge()
            error = failed[0] if failed else kafka_error(exc)
            raise self._meaning(error, error_text(error or exc)) from exc
        if failed or unsent:
            producer.purge()
            error = failed[0] if failed else None
            raise self._meaning(
                error, error_text(error) if error else f"{unsent} unconfirmed records"
            )
        self._producer = producer

    def _meaning(self, error: KafkaError | None, text: str) -> Exception:
        code = None if error is None else error.code()
        if code in FENCED:
            return Superseded(
                f"the transactional id {self._id} was taken over, by another job or a cancel"
            )
        if code in TOO_LARGE:
            return TooLarge(text)
        if code in _DENIED:
            return RedriveRefused(
                f"no permission: grant WRITE on the target and on the dispositions topic, and "
                f"WRITE and DESCRIBE on the transactional id {self._id} ({text})"
            )
        if code in _MISSING:
            return RedriveRefused(f"the target topic is gone ({text})")
        return Unwritten(text)

    def discard(self) -> None:
        """Discard the producer and what it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
