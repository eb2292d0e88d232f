"""Transactor: one transactional id: begin, commit, abort, fence, and what an outcome was.

Its calls wait for the network, so it runs on a thread of its own. Rules, each seen on a broker:

* When a producer starts, it takes over its transactional id: the previous owner is fenced, and the
  transaction that it left open is aborted, within half a second and not after the transaction's
  timeout. So a worker starts its producer before it joins its group, and ids stay the same after a
  restart.
* Before the commit request nothing is committed, whatever fails: abort, and if even that fails,
  discard the producer. The start of the next producer aborts what is left.
* A record that the broker refused leaves a gap in the producer's sequence numbers, for which the
  next transaction would fail (OUT_OF_ORDER_SEQUENCE_NUMBER). A new producer begins at 0.
* After an error of the commit itself, the transaction may be committed or not (a broker may commit
  it and die before it answers). Don't call commit again: protocol and client have been seen to tear
  transactions there. The producer is discarded, the start of the next one ends the transaction
  either way, and then the group is asked for its committed offsets. The transaction's offsets were
  never committed before, so the answer shows the outcome.
* The group is asked for stable offsets through a consumer that never joins, because the member
  belongs to another thread. While the transaction is open there is no answer, so the request is
  repeated. What it says of a partition that was revoked meanwhile is another member's, perhaps, and
  counts for nothing. Never ask through the admin client: while the coordinator is moving, the
  answer to its `list_consumer_group_offsets` crashes the process (librdkafka 2.16.1, a null
  pointer).
* The group fences a member that it has thrown out only if the metadata names a member and a
  generation. The client takes both away before the consumer knows that it has lost its partitions.
  So a transaction without them is not begun.
* The client does not keep every time limit: it sends offsets through a request for the group's
  coordinator that checks none, and if the look-up fails it waits for a broker to change state.
  Therefore each call is announced (`busy_s`), so that the owner thread can see that one hangs.
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

from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.record import TopicPartition as Partition
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import (
    CLIENT_RAISES,
    FENCED,
    PURGED,
    TOO_LARGE,
    error_text,
    kafka_error,
    refused_setting,
)
from ackfloor.kafka.client.client_log import ClientLog
from ackfloor.kafka.client.client_options import (
    ONE_PER_REQUEST,
    KafkaOptions,
    make_client,
    quiet_consumer,
    transactional_config,
)
from ackfloor.kafka.consume.committer import offset_of
from ackfloor.kafka.groups.generation import fences_nothing
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.kafka.produce.sink import REFUSED, produce

log = logging.getLogger("ackfloor.kafka")

#: How long the first start may take; the coordinator may just be moving.
START_S = 30.0
#: Most seconds of one request.
REQUEST_S = 10.0
#: Least seconds of one request, however little time is left.
LEAST_S = 1.0
PAUSE_S = 0.2
#: Seconds of one flush; after each the writes known to be hopeless are checked.
STEP_S = 0.1


class _Unwritten(Exception):
    """Not every record of a transaction was written."""


class Transactor:
    """Carries out one transaction after the other, on one thread.

    Args:
        options: the client's properties.
        group: the consumer group whose offsets are committed.
        transactional_id: the same for this worker and its successor.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions, group: str, transactional_id: str) -> None:
        self._config = transactional_config(options, transactional_id)
        self._options, self._group = options, group
        self._id = transactional_id
        self._producer: Producer | None = None
        #: Whether that one sends each record in a request of its own.
        self._singly = False
        self._reader: Consumer | None = None
        #: The topics of outputs that were there.
        self._known: set[str] = set()
        #: Set once no outcome is needed any more.
        self.dismissed = threading.Event()
        #: When it last began a step of at most two requests (monotonic seconds).
        self.busy_s = time.monotonic()

    def start(self) -> None:
        """Take over the transactional id.

        Raises:
            ConfigError: the broker refuses a property.
            SourceFailed: the broker did not allow it within `START_S` seconds.
        """
        until_s = time.monotonic() + START_S
        while True:
            try:
                self._ready()
            except KafkaException as exc:
                refused = refused_setting(kafka_error(exc), self._config)
                if refused is not None:
                    raise refused from None
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

    def _ready(self, *, singly: bool = False) -> Producer:
        """The producer, started if there is none; raises KafkaException if that fails.

        Args:
            singly: one that sends each record in a request of its own.
        """
        if singly != self._singly:
            self._discard()
        if self._producer is None:
            logger = ClientLog(log, f"transactional producer {self._id}")
            config = {"log_level": 2, **self._config, **(ONE_PER_REQUEST if singly else {})}
            producer = make_client(Producer, "producer", config, logger=logger)
            producer.init_transactions(REQUEST_S)
            self._producer, self._singly = producer, singly
        return self._producer

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def carry_out(self, transaction: Transaction, member: object) -> TransactionOutcome | None:
        """Write a transaction and commit it; returns its outcome.

        None if the outcome is not known and is not needed any more.
        """
        until_s = self._begin() + REQUEST_S
        if fences_nothing(member):
            return TransactionOutcome("the group has thrown this worker out, which is to join anew")
        refusals: dict[PendingWrite, Refusal] = {}
        try:
            producer = self._ready(singly=transaction.singly)
            producer.begin_transaction()
        except KafkaException as exc:
            self._failed(exc)
            self._discard()
            return TransactionOutcome(error_text(exc))
        try:
            self._write(producer, transaction, member, refusals, until_s)
        except (*CLIENT_RAISES, _Unwritten) as exc:
            self._failed(exc)
            self._abort(producer)
            if refusals:
                self._known.difference_update([write.topic for write in refusals])
                self._discard()
            return TransactionOutcome(
                str(exc) if isinstance(exc, _Unwritten) else error_text(exc), refusals
            )
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
                return TransactionOutcome(error_text(exc), refusals)
            log.warning("%s: a transaction's outcome is unknown: %s", self._id, error_text(exc))
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
        """Do everything but the commit; after KafkaException or _Unwritten, abort."""

        def delivered(write: PendingWrite, error: KafkaError | None, message: Message) -> None:
            error = failure(error, message)
            # A record that an abort purged from the queue has not failed by itself.
            if error is not None and error.code() not in PURGED:
                refusals[write] = Refusal(error_text(error), error.code() in TOO_LARGE)

        refusals.update(self._to_nowhere(producer, transaction, until_s))
        if refusals:
            raise _Unwritten(next(iter(refusals.values())).error)
        for write in transaction.writes:
            try:
                produce(producer, write, partial(delivered, write))
            except REFUSED as exc:
                error = kafka_error(exc)
                too_large = error is not None and error.code() in TOO_LARGE
                refusals[write] = Refusal(error_text(exc), too_large)
        if not refusals:
            # The records are being sent meanwhile.
            offsets = [offset_of(position) for position in transaction.positions]
            producer.send_offsets_to_transaction(offsets, member, _left_s(until_s))
        unsent = self._flush(producer, transaction, refusals, until_s)
        if refusals or unsent:
            some = next(iter(refusals.values()), Refusal(f"{unsent} records were not confirmed"))
            raise _Unwritten(some.error)

    def _to_nowhere(
        self, producer: Producer, transaction: Transaction, until_s: float
    ) -> dict[PendingWrite, Refusal]:
        """Outputs whose topics do not exist, or are not this worker's to see -> why.

        The producer itself would look for such a topic until the deadline. Each is asked for once.
        """
        refusals: dict[PendingWrite, Refusal] = {}
        errors: dict[str, KafkaError | None] = {}
        for write in transaction.writes:
            topic = write.topic
            if topic in self._known or not isinstance(write, OutputWrite):
                continue
            if topic not in errors:
                self._begin()
                found = producer.list_topics(topic, timeout=_left_s(until_s)).topics
                errors[topic] = found[topic].error if topic in found else None
            error = errors[topic]
            if error is None:
                self._known.add(topic)
            else:
                refusals[write] = Refusal(error_text(error))
        return refusals

    @staticmethod
    def _flush(
        producer: Producer,
        transaction: Transaction,
        refusals: dict[PendingWrite, Refusal],
        until_s: float,
    ) -> int:
        """Wait until all records are written or one can't be; returns how many are not.

        Without the check for hopeless writes the client would look for a deleted topic until the
        deadline.
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

    def _find_out(self, transaction: Transaction, why: str) -> TransactionOutcome | None:
        """End a transaction of unknown outcome, and ask the group whether it was committed."""
        self._discard()
        say_at_s = 0.0
        while not self.dismissed.is_set():
            self._begin()
            try:
                self._ready()
                return COMMITTED if self._has(transaction) else TransactionOutcome(why)
            except KafkaException as exc:
                if time.monotonic() >= say_at_s:
                    say_at_s = time.monotonic() + REQUEST_S
                    log.warning("%s: outcome still unknown: %s", self._id, error_text(exc))
                self.dismissed.wait(PAUSE_S)
        return None

    def _has(self, transaction: Transaction) -> bool:
        """Whether the group has the transaction's offsets; see `Transaction.is_in`.

        Raises:
            KafkaException: there is no answer, or not yet.
        """
        if self._reader is None:
            # It is never polled, so its log lines would pile up.
            self._reader = quiet_consumer(self._options, self._group)
        asked = [TopicPartition(p.topic, p.partition) for p in transaction.positions]
        found: dict[Partition, tuple[int, str]] = {}
        for each in self._reader.committed(asked, timeout=REQUEST_S):
            if each.error is not None:
                raise KafkaException(each.error)
            found[Partition(each.topic, each.partition)] = each.offset, each.metadata or ""
        return transaction.is_in(found)

    def close(self) -> None:
        """Drop the clients."""
        self._discard()
        self._reader = None


def _left_s(until_s: float) -> float:
    return max(LEAST_S, until_s - time.monotonic())
