"""KafkaTransactionalSink: parks records together with their acks; implements `TransactionalSink`.

A transaction is four requests one after the other, about 20 ms, or seconds while a broker is away.
The owner thread must not wait for that, so it passes a transaction to another thread and takes its
outcome at a later turn. It passes everything at once: writes, positions and the group metadata of
that moment. If a partition is revoked meanwhile, the metadata is outdated and the broker refuses
the commit.

A call that does not return can't be cancelled, so the process has to end: the worker fails, and its
successor takes the transactional id, which ends the transaction.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from ackfloor.core.parking.transaction import Transaction, TransactionOutcome
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.produce.transactional_producer import Transactor
from ackfloor.ports import TransactionListener

#: Every call to the client should have returned by then: three times as long as it may take.
STUCK_S = 60.0


class KafkaTransactionalSink:
    """Carries transactions out on a thread of its own.

    Args:
        options: the client's properties.
        group: the consumer group whose offsets are committed.
        transactional_id: the same for this worker and its successor.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions, group: str, transactional_id: str) -> None:
        self._transactor = Transactor(options, group, transactional_id)
        self._listener: TransactionListener
        self._orders: SimpleQueue[tuple[Transaction, object] | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[Transaction, TransactionOutcome]] = SimpleQueue()
        self._pending = 0
        self._thread = threading.Thread(target=self._serve, name="ackfloor:park", daemon=True)
        self._failure: Exception | None = None
        self._closed = False

    def open(self, listener: TransactionListener) -> None:
        """Take the transactional id, which aborts what a killed predecessor left open."""
        self._listener = listener
        self._transactor.start()
        self._thread.start()

    def transact(self, transaction: Transaction, member: object) -> None:
        """Start a transaction."""
        self._pending += 1
        self._transactor.busy_s = time.monotonic()
        if self._closed:
            self._ended.put((transaction, TransactionOutcome("the worker is closing")))
        else:
            self._orders.put((transaction, member))

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            transaction, member = order
            try:
                outcome = self._transactor.carry_out(transaction, member)
            except Exception as exc:  # noqa: BLE001 -- raised on the owner thread
                self._failure = exc
                break
            if outcome is not None:
                self._ended.put((transaction, outcome))
        self._transactor.close()

    def poll(self) -> None:
        """Report the transaction that has ended, without waiting.

        Raises:
            SourceFailed: an unexpected exception, or the client does not return; the outcome is not
                known. The worker's successor finds the transaction ended.
        """
        self._report()
        if self._stuck():
            raise SourceFailed(
                f"the client has not returned from a transaction for {STUCK_S:g} s: this worker "
                "is replaced, and its successor ends the transaction"
            )

    def _report(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise SourceFailed(f"a transaction failed: {error_text(failure)}") from failure
        while self._pending:
            try:
                transaction, outcome = self._ended.get_nowait()
            except Empty:
                return
            self._pending -= 1
            self._listener.on_transaction(transaction, outcome)

    def _stuck(self) -> bool:
        return bool(self._pending) and time.monotonic() - self._transactor.busy_s > STUCK_S

    def pending(self) -> int:
        """How many transactions have no report yet."""
        return self._pending

    def close(self, timeout_s: float) -> None:
        """Wait for the outstanding report, then stop."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_alive():
            self._orders.put(None)
            self._thread.join(0 if self._stuck() else timeout_s)
            self._transactor.dismissed.set()
        self._report()
        self._pending = 0
