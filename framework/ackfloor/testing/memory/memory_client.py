"""MemorySource and MemorySink: the clients of the in-memory broker, as the runtime sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

from ackfloor.core.acks.parked_records import with_parked
from ackfloor.core.messages.fault_causes import Trouble
from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.records.record import CommitPosition, StartPosition, TopicPartition
from ackfloor.errors import PublishFailed, SourceFailed
from ackfloor.ports import SinkListener, SourceListener
from ackfloor.testing.memory.consumer_groups import Member
from ackfloor.testing.memory.memory_broker import MemoryBroker, TooLarge
from ackfloor.testing.memory.memory_log import MemoryRecord


class MemorySource:
    """One member of a group; implements `ports.Source`.

    Args:
        broker: where to read.
        group: the consumer group.
        start: where a group without commits begins.
        batch: most records of one poll.
        quarantined_topics: retry topics of handlers that quarantine -> source topic.
        from_start: topics that are read from their start whatever `start` is: they are newer than
            the group.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        group: str,
        *,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 500,
        quarantined_topics: Mapping[str, str] | None = None,
        from_start: Collection[str] = (),
    ) -> None:
        self._broker = broker
        self._group = group
        self._start = start
        self._batch = batch
        self._from_start = from_start
        self._quarantined_topics = quarantined_topics or {}
        self._member = Member(())
        self._listener: SourceListener | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._answers: list[tuple[CommitPosition, str | None]] = []
        self._turn = 0
        #: The version of the broker in which there was nothing left to report; -1 for none.
        self._looked = -1
        #: Whether partitions wait for the end of a transaction.
        self._carried = False
        self._failed: BaseException | None = None

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group; partitions come with the next poll."""
        missing = [topic for topic in topics if topic not in self._broker.topics]
        if missing:
            raise SourceFailed(f"unknown topics: {', '.join(missing)}")
        self._listener = listener
        self._member = Member(topics)
        self._join(self._member)

    def _join(self, member: Member) -> None:
        self._broker.join(self._group, member)

    # One poll.

    def poll(self, timeout_s: float, *, ahead: bool = True) -> int:  # noqa: ARG002
        """Report what there is; see `ports.Source`. `ahead` changes nothing here."""
        if self._failed is not None:
            raise SourceFailed(f"the consumer has failed: {self._failed}") from self._failed
        if timeout_s > 0:
            with self._broker.changed:
                self._broker.changed.wait_for(self._has_news, timeout_s)
        listener = self._listener
        version = self._broker.version
        if listener is None or (version == self._looked and not self._answers):
            return 0
        self._rebalance(listener)
        if self._answers:
            answers, self._answers = self._answers, []
            self._call(lambda: listener.on_committed(answers))
        self._skip_lost(listener)
        records = self._read()
        if records:
            self._call(lambda: listener.on_records(records))
        elif self._broker.version == version and not self._carried:
            self._looked = version
        return len(records)

    def _call(self, report: Callable[[], None]) -> None:
        try:
            report()
        except Exception as exc:
            self._failed = exc
            raise SourceFailed(f"the listener raised {exc!r}") from exc

    def _has_news(self) -> bool:
        if self._broker.version == self._looked:
            return bool(self._answers)
        group, member = self._broker.group(self._group), self._member
        return bool(
            self._answers
            or member.lost
            or member.expelled
            or group.to_revoke(member)
            or any(not self._is_carried(key) for key in group.to_assign(member))
            or any(self._readable(key) for key in self._positions)
        )

    def _readable(self, key: TopicPartition) -> bool:
        return self._fetches(key) and self._broker.log(*key).has(self._positions[key])

    def _fetches(self, key: TopicPartition) -> bool:
        return key not in self._paused

    def _rebalance(self, listener: SourceListener) -> None:
        """Report lost partitions, then revoke, then assign."""
        broker, member = self._broker, self._member
        if member.expelled:
            lost, member.lost = member.lost, []
            self._forget(lost)
            if lost:
                self._call(lambda: listener.on_lost(lost))
            broker.join(self._group, member)
        with broker.changed:
            group = broker.group(self._group)
            revoked = group.to_revoke(member)
        if revoked:
            self._call(lambda: listener.on_revoked(revoked))
            self._forget(revoked)
            broker.give_up(self._group, member, revoked)
        with broker.changed:
            free = group.to_assign(member)
            assigned = [key for key in free if not self._is_carried(key)]
            self._carried = len(assigned) < len(free)
            group.claim(member, assigned)
            starts = [self._begin(key) for key in assigned]
        if starts:
            self._call(lambda: listener.on_assigned(starts))

    def _is_carried(self, key: TopicPartition) -> bool:
        return self._listener is not None and self._listener.is_carried(key)

    def _begin(self, key: TopicPartition) -> StartPosition:
        """Read a partition from where the group has left it."""
        start = self._with_parked(self._with_id(self._start_of(key)))
        self._positions[key] = start.position
        return start

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for key in partitions:
            self._positions.pop(key, None)
            self._paused.discard(key)

    def _start_of(self, key: TopicPartition) -> StartPosition:
        log = self._broker.log(*key)
        found = self._broker.committed(self._group, *key)
        if found is None:
            first = self._start == "earliest" or key.topic in self._from_start
            position = log.start if first else log.end
            return StartPosition(*key, position, committed=False)
        if found.position > log.end:
            # The log is not the one that was committed for: start over, lose nothing.
            return StartPosition(*key, log.start, committed=False)
        if found.position < log.start:
            lost = log.start - found.position
            return StartPosition(*key, log.start, False, found.metadata, lost)
        return StartPosition(*key, found.position, True, found.metadata)

    def _with_id(self, start: StartPosition) -> StartPosition:
        end = self._broker.log(start.topic, start.partition).end
        return start._replace(topic_id=self._broker.topic_id(start.topic), log_end=end)

    def _with_parked(self, start: StartPosition) -> StartPosition:
        source = self._quarantined_topics.get(start.topic)
        if source is None:
            return start
        log = self._broker.log(start.topic, start.partition)
        return with_parked(start, source, log.read(start.position, log.end))

    def _skip_lost(self, listener: SourceListener) -> None:
        """Retention deleted the records to read next: go on at the log's start."""
        gone: list[tuple[TopicPartition, int, int]] = []
        with self._broker.changed:
            for key, position in self._positions.items():
                log = self._broker.log(*key)
                if position < log.start and self._fetches(key):
                    self._positions[key] = log.start
                    gone.append((key, log.start, log.end))
        for key, first, end in gone:
            self._call(partial(listener.on_gone, key, first, end))

    def _read(self) -> list[MemoryRecord]:
        """A batch, beginning with another partition each time so that none starves."""
        self._turn += 1
        with self._broker.changed:
            keys = [key for key in self._positions if self._fetches(key)]
            first = self._turn % len(keys) if keys else 0
            batch: list[MemoryRecord] = []
            for key in keys[first:] + keys[:first]:
                log = self._broker.log(*key)
                position = self._positions[key]
                records = log.read(position, self._batch - len(batch))
                if records:
                    position = records[-1].offset() + 1
                self._positions[key] = position if log.has(position) else log.end
                batch.extend(records)
            return batch

    # What the runtime asks for.

    def commit(self, positions: Sequence[CommitPosition], *, wait: bool) -> None:
        """Commit positions; see `ports.Source`."""
        error = self._broker.store(
            self._group,
            self._member,
            [(TopicPartition(p.topic, p.partition), p.position, p.metadata) for p in positions],
        )
        answers = [(position, error) for position in positions]
        if not wait:
            self._answers.extend(answers)
        elif self._listener is not None:
            self._listener.on_committed(answers)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading partitions."""
        self._paused.update(key for key in partitions if key in self._positions)

    def resume(self, positions: Sequence[tuple[TopicPartition, int]]) -> None:
        """Read partitions again, from the given positions."""
        for key, position in positions:
            if key in self._positions:
                self._paused.discard(key)
                self._positions[key] = position
                self._looked = -1

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The next position of each partition; past a hole at the end of the log."""
        with self._broker.changed:
            return {(k.topic, k.partition): position for k, position in self._positions.items()}

    @staticmethod
    def poll_limit_s() -> None:
        """No limit: a member in memory may go without polls for ever."""

    @staticmethod
    def troubles() -> Mapping[str, Trouble]:
        """Nothing: a broker in memory authorizes everybody."""
        return {}

    @staticmethod
    def silent() -> bool:
        """Never: a broker in memory hears every member."""
        return False

    @staticmethod
    def look_closer() -> None:
        """Do nothing."""

    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions each topic has."""
        with self._broker.changed:
            return dict(self._broker.topics)

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """The end of each assigned partition's log."""
        with self._broker.changed:
            there = self._broker.topics
            keys = [key for key in self._positions if key.topic in there]
            return {(key.topic, key.partition): self._broker.log(*key).end for key in keys}

    def close(self) -> None:
        """Give up all partitions and leave the group."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if self._answers:
            listener.on_committed(self._answers)
            self._answers = []
        owned = list(self._positions)
        if owned and self._member.expelled:
            listener.on_lost(owned)
        elif owned:
            # Set again for the commit inside the callback, whose answer comes through it.
            self._listener = listener
            listener.on_revoked(owned)
            self._listener = None
        self._forget(owned)
        self._broker.leave(self._group, self._member)

    def membership(self) -> object:
        """This member of the group, as it is now."""
        return self._broker.group(self._group).generation(self._member)

    # What a test does to it.

    def kill(self) -> None:
        """Crash: nothing is reported, given up or committed any more."""
        self._listener = None
        self._forget(list(self._positions))
        self._broker.leave(self._group, self._member)
        self._member.expelled = True

    def expel(self) -> None:
        """Let the session time out: the partitions go to others, and are lost here."""
        self._broker.expel(self._group, self._member)


class MemorySink:
    """Writes records to a broker in memory; implements `ports.Sink`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._listener: SinkListener | None = None
        self._open = False
        #: Written or refused, and not reported: (write, error).
        self._outstanding: list[tuple[PendingWrite, PublishFailed | None]] = []

    def open(self, listener: SinkListener) -> None:
        """Make ready to write."""
        self._listener = listener
        self._open = True

    def publish(self, write: PendingWrite) -> None:
        """Write a record; the next poll reports it."""
        if not self._open:
            if self._listener is not None:
                self._listener.on_publish_failed(write, "the worker is closing", too_large=False)
            return
        record = write.delivery.record
        error: PublishFailed | None = None
        try:
            self._broker.produce(
                write.topic,
                record.value(),
                key=record.key(),
                headers=write.headers,
                partition=write.partition,
            )
        except PublishFailed as exc:
            error = exc
        self._outstanding.append((write, error))

    def poll(self) -> None:
        """Report what was written and what was refused."""
        outstanding, self._outstanding = self._outstanding, []
        for write, error in outstanding:
            if self._listener is None:
                return
            if error is None:
                self._listener.on_published((write,))
            else:
                too_large = isinstance(error, TooLarge)
                self._listener.on_publish_failed(write, str(error), too_large=too_large)

    def pending(self) -> int:
        """Writes that were not reported yet."""
        return len(self._outstanding)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002
        """Report what is outstanding, then stop."""
        self.poll()
        self._open = False

    def kill(self) -> None:
        """Crash: what is outstanding is never reported."""
        self._listener = None
        self._open = False
        self._outstanding = []
