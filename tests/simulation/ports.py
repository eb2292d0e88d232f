"""The simulated Kafka client: what is asked of the broker takes time, and may go wrong on the way.

Each port is that of the in-memory broker with a network between. A request arrives after a while,
in the order in which its client sent it; its answer takes a while, too. A fault can lose either:
then the client is told so after its time-out, and whether the broker has done it, it does not know.
What was sent before a process died may still arrive, as from a socket's buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ackfloor.core.parking.output_write import OutputWrite
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import COMMITTED, Transaction, TransactionOutcome
from ackfloor.core.records.record import CommitPosition, Headers, TopicPartition
from ackfloor.errors import PublishFailed
from ackfloor.ports import (
    Sink,
    SinkListener,
    SourceListener,
    TransactionalSink,
    TransactionListener,
)
from ackfloor.testing.memory.consumer_groups import Generation, Member
from ackfloor.testing.memory.memory_broker import MemoryBroker, MemoryPublisher, TooLarge
from ackfloor.testing.memory.memory_client import MemorySource
from ackfloor.testing.memory.memory_log import MemoryRecord
from ackfloor.testing.memory.memory_transactions import MemoryTransactionalSink
from tests.simulation.hub import Hub
from tests.simulation.life import Life
from tests.simulation.network import Network

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

#: Seconds after which the client gives a request up that nobody answers.
COMMIT_TIMEOUT_S = 6.0
PUBLISH_TIMEOUT_S = 8.0
#: Seconds that a commit is waited for at most.
SYNC_COMMIT_S = 10.0


def _take_reports(sink: Sink | TransactionalSink, hub: Hub, timeout_s: float) -> None:
    """Wait for what is outstanding at a sink's end, for so long at most."""
    until_s = hub.now_s + timeout_s
    sink.poll()
    while sink.pending() and hub.now_s < until_s:
        hub.pause(0.01)
        sink.poll()


class SimBroker(MemoryBroker):
    """The broker in memory; who waits for a partition finds out at once that it is free.

    Attributes:
        on_moved: called where a group's partitions may have moved.
    """

    on_moved: Callable[[], None] = staticmethod(lambda: None)

    def give_up(self, group: str, member: Member, partitions: Sequence[TopicPartition]) -> None:
        """As the broker."""
        super().give_up(group, member, partitions)
        self.on_moved()

    def join(self, group: str, member: Member) -> None:
        """As the broker."""
        super().join(group, member)
        self.on_moved()

    def leave(self, group: str, member: Member) -> None:
        """As the broker."""
        super().leave(group, member)
        self.on_moved()

    def expel(self, group: str, member: Member) -> None:
        """As the broker."""
        super().expel(group, member)
        self.on_moved()


class SimSource(MemorySource):
    """One member of a group, at the end of a network."""

    def __init__(
        self,
        broker: MemoryBroker,
        group: str,
        hub: Hub,
        life: Life,
        network: Network,
        watch: Watch,
        quarantined_topics: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(broker, group, batch=network.batch, quarantined_topics=quarantined_topics)
        self._hub = hub
        self._life = life
        self._line = network.line(life)
        self._watch = watch
        self._session_s = network.session_s
        self._weather = network.weather
        #: Whether the group's coordinator is silent towards it.
        self.coordinator_is_silent = False
        #: Partitions that it has given up for lost, while the group has them as its own.
        self._suspended: set[TopicPartition] = set()
        #: Until when the loop may wait for news; set by who knows what it waits for.
        self.patience_s: Callable[[float], float] = lambda seconds: seconds

    def reads(self, topic: str, partition: int) -> bool:
        """Whether it has this partition."""
        return TopicPartition(topic, partition) in self._positions

    def _fetches(self, key: TopicPartition) -> bool:
        return key.topic not in self._weather.unread and super()._fetches(key)

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group."""
        self._life.reach()
        super().subscribe(topics, listener)

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:
        """Report what there is, after waiting for it in simulated time."""
        self._life.reach()
        wait_s = 0.0 if self._has_news() else self.patience_s(timeout_s)
        # A turn takes a moment, in which others may come in between.
        self._hub.pause(max(wait_s, 1e-6 + self._line.turn_s()), wakeable=True)
        self._life.reach()
        if self.coordinator_is_silent:
            self._suspend()
            return 0
        count = super().poll(0.0, ahead=ahead)
        self._life.reach()
        return count

    # Like `kafka.consume.membership`.

    def silent(self) -> bool:
        """Whether others may have its partitions."""
        return self.coordinator_is_silent

    def _has_news(self) -> bool:
        if self.coordinator_is_silent:
            return False
        return super()._has_news() or any(map(self._may_go_on, self._suspended))

    def _may_go_on(self, key: TopicPartition) -> bool:
        """Whether it can be asked where a partition goes on: after what was sent before."""
        return not (self._line.in_transit or self._is_carried(key))

    def _suspend(self) -> None:
        """Give up what it has for lost."""
        held, listener = list(self._positions), self._listener
        if held and listener is not None:
            self._forget(held)
            self._suspended.update(held)
            self._looked = -1
            self._call(lambda: listener.on_lost(held))

    def _rebalance(self, listener: SourceListener) -> None:
        super()._rebalance(listener)
        still = {*self._broker.group(self._group).owned(self._member)}
        self._suspended &= still - self._positions.keys()
        going = {key for key in self._suspended if self._may_go_on(key)}
        self._suspended -= going
        self._carried = self._carried or bool(self._suspended)
        starts = [self._begin(key) for key in sorted(going)]
        if starts:
            self._call(lambda: listener.on_assigned(starts))

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Send a commit; wait for its answer where that is asked for."""
        self._life.reach()
        answered: list[str | None] = []
        member, joins = self._member, self._member.joins

        def answer(error: str | None) -> None:
            if answered or not self._life.alive:
                return
            answered.append(error)
            if not wait:
                self._answers.extend((position, error) for position in positions)
                self._line.news()

        said = [(TopicPartition(p.topic, p.partition), p.position, p.metadata) for p in positions]

        def arrive() -> str | None:
            if member.joins != joins:
                return "unknown member: it has joined again since"
            error = self._broker.store(self._group, member, said)
            if self._suspended:
                self._line.news()
            if error is None:
                self._watch.landed(self._life, said)
            return error

        self._watch.commit_sent(self._life, positions)
        self._line.request("commit", arrive, answer, COMMIT_TIMEOUT_S)
        self._life.reach()
        if wait:
            self._wait_for(positions, answered)

    def _wait_for(self, positions: Sequence[CommitPosition], answered: list[str | None]) -> None:
        until_s = self._hub.now_s + SYNC_COMMIT_S
        while not answered and self._hub.now_s < until_s:
            self._hub.pause(0.01)
        if not answered:
            answered.append("no answer in time")
        self._life.reach()
        if self._listener is not None:
            self._listener.on_committed([(position, answered[0]) for position in positions])

    def close(self) -> None:
        """Leave the group."""
        self._life.reach()
        super().close()
        self._life.reach()

    def die(self) -> None:
        """The process is gone; the group finds out when the session ends."""
        self._listener = None
        member = self._member
        self._hub.after(self._session_s, lambda: self._expel(member))

    def _expel(self, member: Member) -> None:
        if member in self._broker.group(self._group).members:
            self._broker.expel(self._group, member)

    def outlive_session(self) -> None:
        """The session is over while the process stands still."""
        self._expel(self._member)


class SimSink:
    """Implements `ports.Sink` at the end of a network."""

    def __init__(
        self, broker: MemoryBroker, hub: Hub, life: Life, network: Network, watch: Watch
    ) -> None:
        self._broker = broker
        self._hub = hub
        self._life = life
        self._line = network.line(life)
        self._watch = watch
        self._listener: SinkListener | None = None
        self._open = False
        self._reports: deque[tuple[PendingWrite, PublishFailed | str | None]] = deque()
        self._pending = 0

    def open(self, listener: SinkListener) -> None:
        """Make ready to write."""
        self._listener = listener
        self._open = True

    def publish(self, parcel: PendingWrite) -> None:
        """Send a parcel; it is reported by a later poll."""
        self._life.reach()
        if not self._open:
            if self._listener is not None:
                self._listener.on_publish_failed(parcel, "the worker is closing", too_large=False)
            return
        self._pending += 1
        told: list[bool] = []
        self._watch.publish_sent(self._life, parcel)
        # What a parcel says is worked out anew for its next attempt.
        topic, partition, headers = parcel.topic, parcel.partition, parcel.headers
        record = parcel.delivery.record

        def arrive() -> PublishFailed | None:
            try:
                written = self._broker.produce(
                    topic,
                    record.value(),
                    key=record.key(),
                    headers=headers,
                    partition=partition,
                )
            except PublishFailed as exc:
                return exc
            self._watch.written(self._life, parcel, written)
            self._line.appended(written.topic(), written.partition())
            return None

        def answer(error: PublishFailed | str | None) -> None:
            if not told and self._life.alive:
                told.append(True)
                self._reports.append((parcel, error))
                self._line.news()

        self._line.request("publish", arrive, answer, PUBLISH_TIMEOUT_S)
        self._life.reach()

    def poll(self) -> None:
        """Report what was confirmed and what has failed."""
        self._life.reach()
        while self._reports and self._listener is not None:
            parcel, error = self._reports.popleft()
            self._pending -= 1
            if error is None:
                self._listener.on_published((parcel,))
            else:
                too_large = isinstance(error, TooLarge)
                self._listener.on_publish_failed(parcel, str(error), too_large=too_large)
            self._life.reach()

    def pending(self) -> int:
        """Parcels whose report is outstanding."""
        return self._pending

    def close(self, timeout_s: float) -> None:
        """Wait for outstanding reports, then stop."""
        _take_reports(self, self._hub, timeout_s)
        self._open = False

    def die(self) -> None:
        """The process is gone: nothing is reported any more."""
        self._listener = None


class SimTransactionalSink(MemoryTransactionalSink):
    """Transactions at the end of a network; their end may be unclear for a while."""

    def __init__(
        self, broker: MemoryBroker, group: str, hub: Hub, life: Life, network: Network, watch: Watch
    ) -> None:
        super().__init__(broker, group)
        self._hub = hub
        self._life = life
        self._line = network.line(life)
        self._watch = watch
        self._ended: deque[tuple[Transaction, TransactionOutcome]] = deque()
        self._pending = 0

    def open(self, listener: TransactionListener) -> None:
        """Make ready; a predecessor's open transaction has ended with it."""
        super().open(listener)

    def transact(self, transaction: Transaction, member: object) -> None:
        """Begin a transaction; a later poll reports its end."""
        self._life.reach()
        assert isinstance(member, Generation)
        self._pending += 1
        self._watch.in_transaction(self._life, transaction.positions)
        for parcel in transaction.writes:
            self._watch.publish_sent(self._life, parcel)

        def end() -> None:
            # The producer is fenced with its process: what it has not ended is aborted.
            if not self._life.alive:
                return
            outcome = self._line.aborted() or self._carried_out(transaction, member)
            told = bool(outcome.refusals) or not self._line.unclear
            self._hub.after(
                self._line.unclear_s(),
                lambda: report(outcome if told else self._found_out(transaction, outcome)),
            )

        def report(outcome: TransactionOutcome) -> None:
            if self._life.alive:
                self._ended.append((transaction, outcome))
                self._line.news()

        self._hub.after(self._line.transact_s(), end)
        self._life.reach()

    def _found_out(
        self, transaction: Transaction, outcome: TransactionOutcome
    ) -> TransactionOutcome:
        """How it ended, by what the group has committed by now."""
        committed = self._broker.group(self._group).committed
        if not transaction.positions:
            return outcome
        if transaction.is_in(committed):
            return COMMITTED
        return TransactionOutcome(outcome.error or "the group has none of its commits")

    def _carried_out(self, transaction: Transaction, generation: Generation) -> TransactionOutcome:
        outcome = super()._carried_out(transaction, generation)
        if outcome.committed:
            self._watch.carried_out(self._life, transaction)
        return outcome

    def _commit(self, transaction: Transaction, generation: Generation) -> str | None:
        error = super()._commit(transaction, generation)
        if error is None:
            self._watch.landed(
                self._life,
                [
                    (TopicPartition(p.topic, p.partition), p.position, p.metadata)
                    for p in transaction.positions
                ],
            )
        return error

    def _append(self, parcel: PendingWrite) -> MemoryRecord:
        written = super()._append(parcel)
        if isinstance(parcel, OutputWrite):
            self._watch.output_written(self._life, parcel, written)
        else:
            self._watch.written(self._life, parcel, written)
            self._line.appended(written.topic(), written.partition())
        return written

    def poll(self) -> None:
        """Report what has ended."""
        self._life.reach()
        while self._ended and self._listener is not None:
            transaction, outcome = self._ended.popleft()
            self._pending -= 1
            self._watch.out_of_transaction(self._life, transaction.positions)
            self._listener.on_transaction(transaction, outcome)
            self._life.reach()

    def pending(self) -> int:
        """Transactions whose report is outstanding."""
        return self._pending

    def close(self, timeout_s: float) -> None:
        """Wait for the outstanding report, then stop."""
        _take_reports(self, self._hub, timeout_s)
        self._open = False

    def die(self) -> None:
        """The process is gone."""
        self._listener = None


class SimPublisher(MemoryPublisher):
    """Writes what handlers publish; the confirmation takes its time."""

    def __init__(self, broker: MemoryBroker, life: Life, network: Network) -> None:
        super().__init__(broker, create_topics=True)
        self._life = life
        self._line = network.line(life)

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Send one record."""
        self._line.request(
            "publish",
            lambda: self._published(topic, value, key, headers, partition),
            lambda error: on_done(PublishFailed(error) if isinstance(error, str) else error),
            PUBLISH_TIMEOUT_S,
        )

    def _published(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> BaseException | None:
        said: list[BaseException | None] = []
        super().publish(topic, value, key, headers, said.append, partition)
        return said[0]
