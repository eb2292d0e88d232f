"""KafkaTransactionalSink: parks records together with their acks; implements `TransactionalSink`.

A transaction is four requests one after the other, about 20 ms, or seconds while a broker is away.
The owner thread must not wait for that, so it hands a transaction over and finds its end at a
later turn. What it hands over is whole: parcels, positions and the membership of that moment. A
partition that leaves meanwhile changes the membership, and the broker refuses the commit.

A call that does not come back can't be ended, and the process that made it has to: the worker
fails, and the one that takes its place takes the transactional id, which ends the transaction.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from ackfloor.core.parking.transaction import Outcome, Transaction
from ackfloor.errors import SourceFailed
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.produce.transactional_producer import Transactor
from ackfloor.ports import TransactionListener

#: Every call to the client should have come back by then: three times as long as it may take.
STUCK_S = 60.0


class KafkaTransactionalSink:
    """Carries transactions out on a thread of its own.

    Args:
        options: the client's properties.
        group: the consumer group in whose name is committed.
        transactional_id: this worker's, and its successor's.

    Raises:
        ConfigError: a property is refused.
    """

    def __init__(self, options: KafkaOptions, group: str, transactional_id: str) -> None:
        self._transactor = Transactor(options, group, transactional_id)
        self._listener: TransactionListener
        self._orders: SimpleQueue[tuple[Transaction, object] | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[Transaction, Outcome]] = SimpleQueue()
        self._pending = 0
        self._thread = threading.Thread(target=self._serve, name="ackfloor:park", daemon=True)
        self._failure: Exception | None = None
        self._closed = False

    def open(self, listener: TransactionListener) -> None:
        """Take the transactional id, which ends what a killed predecessor left open."""
        self._listener = listener
        self._transactor.start()
        self._thread.start()

    def transact(self, transaction: Transaction, member: object) -> None:
        """Begin to write a transaction."""
        self._pending += 1
        self._transactor.busy_s = time.monotonic()
        if self._closed:
            self._ended.put((transaction, Outcome("the worker is closing")))
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
            SourceFailed: it broke off in a way nobody foresaw, or the client does not come back,
                and how it ended is not known. A worker that takes this one's place finds it ended.
        """
        self._report()
        if self._stuck():
            raise SourceFailed(
                f"the client has not come back from a transaction for {STUCK_S:g} s: this worker "
                "starts afresh, and its successor ends the transaction"
            )

    def _report(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise SourceFailed(f"a transaction broke off: {error_text(failure)}") from failure
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
        """Transactions whose report is outstanding."""
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
