"""A world with a broker: logs that grow, positions that are committed, and workers that come anew.

For the tests of quarantine, where what a worker writes is what it, or the next one, reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ackfloor.core.acks.parked_records import with_parked
from ackfloor.core.breaker.breaker_settings import CircuitBreaker
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transaction
from ackfloor.core.queues.lanes import Work
from ackfloor.core.queues.quarantine import Quarantine
from ackfloor.core.records.envelope import Envelope, Reason, read_envelope
from ackfloor.core.records.outcomes import ACKED, Failed, Outcome, Rejected
from ackfloor.core.records.record import Failure, Headers, StartPosition, TopicPartition
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.records.tracked_delivery import TrackedDelivery
from ackfloor.core.state.assignment import HandlerRules
from ackfloor.core.state.worker_state import Route
from tests.framework.core.worlds import DLQ, START_MS, MemoryRecord, World

SOURCE = "orders"
SHORT, LONG = "orders--g--retry-1s", "orders--g--retry-5s"
TIERS = (SHORT, LONG)
#: Two retries, after one second and after five.
POLICY = RetryPolicy("1s", 5, "5s", 2, 0)
BOOM = Failed(Failure("Boom", "x"))
HOPELESS = Rejected(Failure("Hopeless", "x"))
TEN_YEARS_MS = 10 * 365 * 86_400_000


def rules(**others: Any) -> HandlerRules:
    """A handler that quarantines."""
    base = HandlerRules(
        "bill",
        "key",
        concurrency=8,
        quarantines=True,
        policy=POLICY,
        breaker=CircuitBreaker(enabled=False),
    )
    return replace(base, **others)


@dataclass
class QuarantineWorld(World):
    """One worker at a time, and a broker of which it reads what is written.

    Attributes:
        count: partitions of the source topic.
        counts: topic -> how many it has, where that is another number.
    """

    count: int = 1
    counts: Sequence[tuple[str, int]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partitions.clear()
        self.partitions.update(dict.fromkeys((SOURCE, *TIERS, DLQ), self.count))
        self.partitions.update(self.counts)
        self.routes.clear()
        self.routes[SOURCE] = Route("bill", SOURCE)
        self.routes[SHORT] = Route("bill", SOURCE, 1.0)
        self.routes[LONG] = Route("bill", SOURCE, 5.0)
        self.logs: dict[tuple[str, int], list[MemoryRecord]] = {
            (topic, partition): []
            for topic, count in self.partitions.items()
            for partition in range(count)
        }
        #: The first offset of logs of which retention has taken some.
        self.firsts: dict[tuple[str, int], int] = {}
        #: What is committed: position and metadata.
        self.stored: dict[tuple[str, int], tuple[int, str]] = {}
        #: Source partition and origin offset of each start and its attempt, and of each record that
        #: was handled.
        self.starts: list[tuple[int, int, int]] = []
        self.handled: list[tuple[int, int]] = []

    # The broker.

    def append(
        self,
        topic: str,
        key: bytes | None = b"a",
        *,
        partition: int = 0,
        headers: Headers | None = None,
        value: bytes | None = b"{}",
    ) -> MemoryRecord:
        """A record is written."""
        log = self.logs[topic, partition]
        record = MemoryRecord(
            topic, partition, len(log), value, key, headers, _timestamp_ms=self.now.wall_ms
        )
        log.append(record)
        return record

    def produce(self, keys: str, partition: int = 0) -> None:
        """Records of these keys, a letter each, are written to the source, and read."""
        for key in keys:
            self.append(SOURCE, key.encode(), partition=partition)
        self.poll()

    def poll(self, *topics: str) -> None:
        """Everything that is there is read, of these topics; where fetching is not paused."""
        for (topic, partition), log in self.logs.items():
            a = self.engine.assignments.get((topic, partition))
            if a is None or a.paused or a.stopping or (topics and topic not in topics):
                continue
            if unread := log[a.tracker.position :]:
                self.engine.polled(unread, self.now)
                self.take()

    def store(self, write: PendingWrite) -> MemoryRecord:
        """The broker has a write; the worker does not know it yet."""
        return self.append(
            write.topic,
            write.delivery.key,
            partition=write.partition or 0,
            headers=list(write.headers),
            value=write.delivery.value,
        )

    def confirm(self) -> PendingWrite:
        """The broker has the oldest write, and says so."""
        self.store(self.writes[0])
        return super().confirm()

    def confirm_all(self) -> None:
        """The broker has all that is being written, and says so."""
        while self.writes:
            self.confirm()

    def carry_out(self, *, tell: bool = True) -> Transaction:
        """The broker commits the transaction under way, and the worker is told."""
        transaction = self.transactions[0]
        for write in transaction.writes:
            self.store(write)
        for each in transaction.positions:
            self.stored[each.topic, each.partition] = each.position, each.metadata
        return self.end_transaction() if tell else transaction

    def commit_transactions(self) -> None:
        """The same of each transaction, until none is under way."""
        while self.transactions:
            self.carry_out()

    def commit(self) -> None:
        """The worker commits, and the broker takes it."""
        self.tick(1.0)
        self.answer_commits()

    def answer_commits(self) -> None:
        """The broker takes what is being committed."""
        while self.commits:
            for position in self.commits[0].positions:
                place = position.topic, position.partition
                self.stored[place] = position.position, position.metadata
            self.answer_commit()

    # Workers.

    def start_of(self, topic: str, partition: int = 0) -> StartPosition:
        """Where a partition is read from, with what is parked there."""
        position, metadata = self.stored.get((topic, partition), (0, ""))
        log = self.logs[topic, partition]
        lost = max(0, self.firsts.get((topic, partition), 0) - position)
        position += lost
        start = StartPosition(
            topic, partition, position, metadata=metadata, lost=lost, log_end=len(log)
        )
        if topic == SOURCE:
            return start
        return with_parked(start, SOURCE, log[position:])

    def gain(self, *topics: str, partition: int = 0) -> None:
        """Partitions of that number come together, of all topics or of these."""
        mine = topics or (SOURCE, *TIERS)
        starts = [self.start_of(t, partition) for t in mine if partition < self.partitions[t]]
        self.engine.assign(starts, self.now)
        self.take()

    def leave_all(self, *topics: str, partition: int = 0, lost: bool = False) -> None:
        """Partitions of that number leave together, of all topics or of these."""
        leaving = [TopicPartition(topic, partition) for topic in topics or (SOURCE, *TIERS)]
        self.engine.stop(leaving)
        final = () if lost else self.engine.final_positions(leaving)
        self.engine.drop(leaving, lost=lost)
        self.take()
        for each in final:
            self.stored[each.topic, each.partition] = each.position, each.metadata

    def crash(self) -> None:
        """The worker is killed, and another starts, without partitions."""
        for left in (self.ready, self.works, self.writes, self.commits, self.commands):
            left.clear()
        self.inbox.clear()
        self.begin()

    def restart(self, partition: int = 0) -> None:
        """The worker is killed, and another has its partitions; it has read nothing yet."""
        self.crash()
        self.gain(partition=partition)

    # Handlers.

    def startable(self) -> bool:
        """Whether a slot finds a record that may start."""
        return any(map(_startable, self.ready))

    def start(self) -> TrackedDelivery:
        """A slot takes the next record that may start."""
        while not _startable(self.ready[0]):
            item = self.ready.popleft()
            if isinstance(item, Work):
                self.engine.unit_ended("bill", item, self.now)
                self.take()
        delivery = super().start()
        origin = delivery.origin
        self.starts.append((origin.partition, origin.offset, delivery.attempt))
        return delivery

    def finish(self, delivery: TrackedDelivery, outcome: Outcome = ACKED) -> None:
        """A handler ends, and its slot is done with what it took."""
        if outcome is ACKED and not delivery.closed:
            self.handled.append((delivery.origin.partition, delivery.origin.offset))
        super().finish(delivery, outcome)
        if delivery.keeps_lane():
            self.works.pop(delivery, None)
        self.leave(delivery)

    def handle(self, outcome: Outcome = ACKED) -> int:
        """The next record is handled, or fails so; returns its origin offset."""
        delivery = self.start()
        self.finish(delivery, outcome)
        return delivery.origin.offset

    def handle_all(self) -> list[int]:
        """All that may start is handled; returns the origin offsets, in order."""
        found: list[int] = []
        while self.startable():
            found.append(self.handle())
        return found

    def come_to_rest(self, fails: Callable[[TrackedDelivery], Outcome] | None = None) -> None:
        """Time passes, writes are confirmed and what is due is handled, until nothing moves."""
        for _ in range(60):
            self.confirm_all()
            self.poll()
            while self.startable():
                delivery = self.start()
                self.finish(delivery, ACKED if fails is None else fails(delivery))
            self.tick(1.0)
            self.answer_commits()

    # What there is.

    @property
    def quarantined(self) -> dict[Any, Quarantine]:
        """The keys that are quarantined."""
        return self.engine.state.handlers["bill"].lanes.quarantined

    @property
    def pending(self) -> int:
        """Records that are in memory alone, behind a quarantined key's head."""
        return self.engine.state.handlers["bill"].lanes.pending

    def open(self, topic: str, partition: int = 0) -> list[int]:
        """The open offsets of a partition."""
        return sorted(self.engine.assignments[topic, partition].tracker.open)

    def waiting_in(self, topic: str, partition: int = 0) -> list[tuple[int, str]]:
        """Origin offsets and reasons of all that was written to a partition."""
        return [
            (envelope.origin_offset or 0, str(envelope.reason))
            for envelope in map(envelope_of, self.logs[topic, partition])
        ]

    def leaving(self) -> list[tuple[str, int | None, int, Reason | None]]:
        """Topic, partition, origin offset and reason of what is being written."""
        return [
            (w.topic, w.partition, w.delivery.origin.offset, w.envelope.reason) for w in self.writes
        ]

    def remove(self, topic: str, below: int, partition: int = 0) -> None:
        """Retention takes what is below an offset; the worker finds out when it reads on."""
        end = len(self.logs[topic, partition])
        self.firsts[topic, partition] = below
        self.engine.gone(TopicPartition(topic, partition), below, end)
        self.take()

    def drop_topic(self, topic: str, partition: int = 0) -> None:
        """A topic is deleted."""
        end = self.engine.assignments[topic, partition].tracker.position
        self.engine.deleted([(TopicPartition(topic, partition), end)])
        self.take()


def envelope_of(record: MemoryRecord) -> Envelope:
    """The envelope of a record in a log."""
    return read_envelope(record.headers() or ())


def parked_headers(
    origin: int,
    *,
    reason: Reason = Reason.ERROR,
    attempt: int = 1,
    partition: int = 0,
    topic: str = SOURCE,
    due_ms: int = 0,
    replays: int = 0,
    written_ms: int | None = None,
) -> Headers:
    """The headers of a record that waits in a retry topic, due for long."""
    values: list[tuple[str, object]] = [
        ("origin.topic", topic),
        ("origin.partition", partition),
        ("origin.offset", origin),
        ("attempt", attempt),
        ("reason", reason),
        ("not_before", due_ms),
        ("replays", replays),
    ]
    if written_ms is not None:
        values.append(("origin.timestamp", written_ms))
    if reason in {Reason.BEHIND, Reason.HELD}:
        values.append(("retry_at", START_MS + TEN_YEARS_MS))
    return [(f"ackfloor.{name}", str(value).encode()) for name, value in values]


def _startable(item: Any) -> bool:
    deliveries = list(item) if isinstance(item, Work) else [item]
    return bool(deliveries) and not (deliveries[0].closed or deliveries[0].assignment.stopping)
