"""MemoryTransactionalSink: the transactions of the in-memory broker.

The poll after the one that began a transaction carries it out, so that a crash, a rebalance or a
fault can come in between. As on a real broker all of it is written or none, and one that was begun
before its partitions moved is refused.
"""

from __future__ import annotations

from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Refusal, Transaction, TransactionOutcome
from ackfloor.core.records.record import TopicPartition
from ackfloor.errors import PublishFailed
from ackfloor.ports import TransactionListener
from ackfloor.testing.memory.consumer_groups import Generation
from ackfloor.testing.memory.memory_broker import MemoryBroker, TooLarge
from ackfloor.testing.memory.memory_log import MemoryRecord


class MemoryTransactionalSink:
    """Writes transactions to a broker in memory; implements `ports.TransactionalSink`.

    Args:
        broker: where to write.
        group: the group in whose name is committed.
        create_topics: create topics that handlers publish to and do not exist.
    """

    def __init__(self, broker: MemoryBroker, group: str, *, create_topics: bool = False) -> None:
        self._create_topics = create_topics
        self._broker = broker
        self._group = group
        self._listener: TransactionListener | None = None
        self._open = False
        self._begun: list[tuple[Transaction, Generation]] = []

    def open(self, listener: TransactionListener) -> None:
        """Make ready to write."""
        self._listener = listener
        self._open = True

    def transact(self, transaction: Transaction, member: object) -> None:
        """Begin a transaction; the next poll carries it out."""
        if not isinstance(member, Generation):
            raise TypeError(f"{member!r} is no member of a group in memory")
        self._begun.append((transaction, member))

    def poll(self) -> None:
        """Carry out what was begun, and report it."""
        begun, self._begun = self._begun, []
        for transaction, generation in begun:
            outcome = self._carried_out(transaction, generation)
            if self._listener is not None:
                self._listener.on_transaction(transaction, outcome)

    def _carried_out(self, transaction: Transaction, generation: Generation) -> TransactionOutcome:
        if not self._open:
            return TransactionOutcome("the worker is closing")
        broker = self._broker
        with broker.changed:
            refusals: dict[PendingWrite, Refusal] = {}
            for write in transaction.writes:
                if self._creates(write):
                    broker.create_topic(write.topic)
                try:
                    broker.admit(
                        write.topic, write.value, write.key, write.headers, write.partition
                    )
                except PublishFailed as exc:
                    refusals[write] = Refusal(str(exc), isinstance(exc, TooLarge))
            if refusals:
                return TransactionOutcome(next(iter(refusals.values())).error, refusals)
            error = self._commit(transaction, generation)
            if error is not None:
                return TransactionOutcome(error)
            for write in transaction.writes:
                self._append(write)
        return COMMITTED

    def _creates(self, write: PendingWrite) -> bool:
        missing = write.topic not in self._broker.topics
        return self._create_topics and missing and isinstance(write, OutputWrite)

    def _append(self, write: PendingWrite) -> MemoryRecord:
        return self._broker.append(
            write.topic, write.value, write.key, write.headers, write.partition
        )

    def _commit(self, transaction: Transaction, generation: Generation) -> str | None:
        positions = [
            (TopicPartition(p.topic, p.partition), p.position, p.metadata)
            for p in transaction.positions
        ]
        member = generation.member
        if member.joins != generation.joins:
            return "illegal generation: the member has joined again since"
        now = self._broker.group(self._group).generation(member).claims
        if not member.expelled and any(
            key not in now or now[key] != generation.claims.get(key) for key, _, _ in positions
        ):
            return "illegal generation: a partition has moved on"
        return self._broker.store(self._group, member, positions)

    def pending(self) -> int:
        """Transactions that were not reported yet."""
        return len(self._begun)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002
        """Carry out what was begun, then stop."""
        self.poll()
        self._open = False

    def kill(self) -> None:
        """Crash: what was begun is never carried out."""
        self._listener = None
        self._open = False
        self._begun = []
