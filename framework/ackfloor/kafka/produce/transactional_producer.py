"""Transactor: one transactional id; carries transactions out and finds out how each one ended.

Its calls wait for the network, so it lives on a thread of its own. Rules, each seen on a broker:

* A producer makes its id its own when it starts: whoever had it before is fenced, and what that
  one left open is aborted, in half a second and not after the transaction's timeout. So a worker
  does it before it joins its group, and ids are the same after a restart.
* Until the commit is asked for, nothing is committed, whatever went wrong: abort, and where even
  that fails, discard the producer. Its successor's start aborts what is left.
* A record that the broker refused leaves a hole in the producer's numbering, for which the next
  transaction would fail (OUT_OF_ORDER_SEQUENCE_NUMBER). Its successor counts from the start.
* An error of the commit itself may leave it done or undone (a broker that did it and died before
  it said so). Calling again is no answer: protocol and client have been seen to tear transactions
  there. The producer is discarded, its successor's start ends the transaction one way or the
  other, and then the group is asked what it has committed. What the transaction would commit was
  never committed before, so it tells which of the two it was.
* The group is asked for stable offsets through a consumer that never joins, because the one that
  did belongs to another thread. As long as the transaction is open, there is no answer, and it is
  asked again. Never through the admin client: where the coordinator is just moving, the answer to
  its `list_consumer_group_offsets` crashes the process (librdkafka 2.16.1, a null pointer).
* Not every time limit is kept: offsets are sent through a request for the group's coordinator that
  checks none, and waits for a broker to come or go when its look-up fails. Every call is therefore
  announced (`busy_s`), and whoever waits for the end can see that it has not come back.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Outcome, Refusal, Transaction
from ackfloor.core.records.record import CommitPosition
from ackfloor.errors import SourceFailed
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
    quiet_consumer,
    transactional_config,
)
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.kafka.produce.sink import REFUSED, produce

log = logging.getLogger("ackfloor.kafka")

#: How long the first start may take; the coordinator may just be moving.
START_S = 30.0
#: Most seconds of one request.
REQUEST_S = 10.0
#: Least seconds that are given to one, however little is left.
LEAST_S = 1.0
PAUSE_S = 0.2
#: Seconds between two looks at what the brokers say meanwhile of what is being written.
STEP_S = 0.1


class _Unwritten(Exception):
    """Not every record of a transaction was taken."""


class Transactor:
    """Carries out one transaction after the other, on one thread.

    Args:
        options: the client's properties.
        group: the consumer group in whose name is committed.
        transactional_id: this worker's, and its successor's.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions, group: str, transactional_id: str) -> None:
        self._config = transactional_config(options, transactional_id)
        self._options, self._group = options, group
        self._id = transactional_id
        self._producer: Producer | None = None
        self._reader: Consumer | None = None
        #: Set when nobody waits for an answer any more.
        self.dismissed = threading.Event()
        #: When it last began something that ends within two requests (monotonic seconds).
        self.busy_s = time.monotonic()

    def start(self) -> None:
        """Make the id ours.

        Raises:
            SourceFailed: the broker did not let us within `START_S` seconds.
        """
        until_s = time.monotonic() + START_S
        while True:
            try:
                self._ready()
            except KafkaException as exc:
                why = error_text(exc)
                if time.monotonic() >= until_s:
                    raise SourceFailed(
                        f"transactional id {self._id!r} could not be taken within {START_S:g} s: "
                        f"{why}"
                    ) from exc
                log.debug("transactional id %s: %s", self._id, why)
                time.sleep(PAUSE_S)
            else:
                return

    def _ready(self) -> Producer:
        """The producer, started if there is none; raises KafkaException where that fails."""
        if self._producer is None:
            producer = make_client(
                Producer, "producer", {"log_level": 2, **self._config}, logger=log
            )
            producer.init_transactions(REQUEST_S)
            self._producer = producer
        return self._producer

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def carry_out(self, transaction: Transaction, member: object) -> Outcome | None:
        """Write a transaction and commit it; returns how it ended.

        None where that is not known and nobody waits for it any more.
        """
        until_s = self._begin() + REQUEST_S
        refusals: dict[PendingWrite, Refusal] = {}
        try:
            producer = self._ready()
            producer.begin_transaction()
        except KafkaException as exc:
            self._failed(exc)
            self._discard()
            return Outcome(error_text(exc))
        try:
            self._write(producer, transaction, member, refusals, until_s)
        except (*CLIENT_RAISES, _Unwritten) as exc:
            self._failed(exc)
            self._abort(producer)
            if refusals:
                self._discard()
            return Outcome(str(exc) if isinstance(exc, _Unwritten) else error_text(exc), refusals)
        self._begin()
        try:
            producer.commit_transaction(_left_s(until_s))
        except CLIENT_RAISES as exc:
            self._failed(exc)
            error = kafka_error(exc)
            if error is not None and error.txn_requires_abort():
                self._abort(producer)
                if refusals:
                    self._discard()
                return Outcome(error_text(exc), refusals)
            log.warning("%s: the end of a transaction is not known: %s", self._id, error_text(exc))
            return self._find_out(transaction, error_text(exc))
        return COMMITTED

    def _begin(self) -> float:
        self.busy_s = time.monotonic()
        return self.busy_s

    def _write(
        self,
        producer: Producer,
        transaction: Transaction,
        member: object,
        refusals: dict[PendingWrite, Refusal],
        until_s: float,
    ) -> None:
        """Everything but the commit; raises KafkaException or _Unwritten: it is to be aborted."""

        def delivered(write: PendingWrite, error: KafkaError | None, message: Message) -> None:
            error = failure(error, message)
            # What an abort takes out of the client's hands has not failed by itself.
            if error is not None and error.code() not in PURGED:
                refusals[write] = Refusal(error_text(error), error.code() in TOO_LARGE)

        for write in transaction.parcels:
            try:
                produce(producer, write, partial(delivered, write))
            except REFUSED as exc:
                error = kafka_error(exc)
                too_large = error is not None and error.code() in TOO_LARGE
                refusals[write] = Refusal(error_text(exc), too_large)
        if not refusals:
            # The records travel meanwhile.
            offsets = [_offset(position) for position in transaction.positions]
            producer.send_offsets_to_transaction(offsets, member, _left_s(until_s))
        unsent = self._flush(producer, transaction, refusals, until_s)
        if refusals or unsent:
            some = next(iter(refusals.values()), Refusal(f"{unsent} records were not confirmed"))
            raise _Unwritten(some.error)

    @staticmethod
    def _flush(
        producer: Producer,
        transaction: Transaction,
        refusals: dict[PendingWrite, Refusal],
        until_s: float,
    ) -> int:
        """Wait until all is written or something can't be; returns how much is not.

        A topic that is gone the client would look for until the time is over.
        """
        until_s = max(until_s, time.monotonic() + LEAST_S)
        while True:
            unsent: int = producer.flush(STEP_S)
            refusals.update(transaction.hopeless)
            if not unsent or refusals or time.monotonic() >= until_s:
                return unsent

    def _abort(self, producer: Producer) -> None:
        self._begin()
        try:
            producer.abort_transaction(REQUEST_S)
        except KafkaException as exc:
            log.debug("%s: not aborted (%s), discarding the producer", self._id, error_text(exc))
            self._discard()

    def _failed(self, exc: Exception) -> None:
        error = kafka_error(exc)
        if error is not None and error.code() in FENCED:
            log.error(
                "another producer took the transactional id %s, or its transaction took too long; "
                "runs of one group on one host need an app.transactional_id_prefix each",
                self._id,
            )

    def _find_out(self, transaction: Transaction, why: str) -> Outcome | None:
        """End a transaction for good, and ask the group which end it was."""
        self._discard()
        say_at_s = 0.0
        while not self.dismissed.is_set():
            self._begin()
            try:
                self._ready()
                return COMMITTED if self._has(transaction) else Outcome(why)
            except KafkaException as exc:
                if time.monotonic() >= say_at_s:
                    say_at_s = time.monotonic() + REQUEST_S
                    log.warning("%s: still not known: %s", self._id, error_text(exc))
                self.dismissed.wait(PAUSE_S)
        return None

    def _has(self, transaction: Transaction) -> bool:
        """Whether the group has what the transaction was to commit.

        Of one partition is enough: another may have a new owner, and its commits, by now.

        Raises:
            KafkaException: it does not say, or not yet.
        """
        if self._reader is None:
            # Nobody polls it, so nobody would take its log lines.
            self._reader = quiet_consumer(self._options, self._group)
        asked = [TopicPartition(p.topic, p.partition) for p in transaction.positions]
        found = {}
        for partition in self._reader.committed(asked, timeout=REQUEST_S):
            if partition.error is not None:
                raise KafkaException(partition.error)
            found[partition.topic, partition.partition] = partition
        return any(_same(p, found[p.topic, p.partition]) for p in transaction.positions)

    def close(self) -> None:
        """Let go of the clients."""
        self._discard()
        self._reader = None


def _left_s(until_s: float) -> float:
    return max(LEAST_S, until_s - time.monotonic())


def _offset(position: CommitPosition) -> TopicPartition:
    return TopicPartition(
        position.topic, position.partition, position.position, position.metadata or None
    )


def _same(position: CommitPosition, found: TopicPartition) -> bool:
    return (found.offset, found.metadata or "") == (position.position, position.metadata)
