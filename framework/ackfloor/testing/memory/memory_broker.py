"""MemoryBroker: Kafka as far as a consumer group can see it, inside the test's process.

Topics are partitioned logs, groups have members, committed positions and metadata, and a test can
cause the faults of a real broker: rebalances, lost members, refused commits and writes, records too
large, holes in the log, retention.

`MemorySource` and `MemorySink` implement the ports that the Kafka client implements in
production and pass the same contract suite. One lock guards the broker; it is never held while
a listener is called, because a listener may wait for a handler that publishes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from zlib import crc32

from ackfloor.core.records.record import Headers, TopicPartition
from ackfloor.errors import PublishFailed
from ackfloor.ports import Clock
from ackfloor.testing.memory.consumer_groups import Committed, Group, Member
from ackfloor.testing.memory.injected_faults import FaultPlan
from ackfloor.testing.memory.manual_clock import ManualClock
from ackfloor.testing.memory.memory_log import MemoryRecord, PartitionLog

#: Longest metadata of a committed position; a real broker refuses one character more.
LONGEST_METADATA = 4_095
#: What a record costs beside its key, value and headers, about as in Kafka's record format.
RECORD_OVERHEAD = 70


class TooLarge(PublishFailed):
    """The record is larger than its topic allows."""


class MemoryBroker:
    """A broker in memory, for as many groups, members and producers as a test needs.

    Args:
        clock: where timestamps come from; default: a `ManualClock` of its own.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = ManualClock() if clock is None else clock
        self._topics: dict[str, list[PartitionLog]] = {}
        self._ids: dict[str, str] = {}
        self._next_id = count(1)
        self._groups: dict[str, Group] = {}
        self._largest: dict[str, int] = {}
        self._publish_faults = FaultPlan()
        self._commit_faults = FaultPlan()
        self._next_keyless = count()
        #: Held for every read and change; notified when a waiting poll may have news to report.
        self.changed = threading.Condition(threading.RLock())
        #: Counts changes: who has read this version need not read again.
        self.version = 0

    # Topics and what is in them.

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or add partitions to one; existing partitions stay as they are."""
        if partitions < 1:
            raise ValueError(f"partitions={partitions}: a topic has at least one partition")
        with self.changed:
            logs = self._topics.setdefault(topic, [])
            if topic not in self._ids:
                self._ids[topic] = f"memory-{next(self._next_id)}"
            logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
            for group in self._groups.values():
                group.plan(self._counts())
            self._has_changed()

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it; its partitions leave their owners."""
        with self.changed:
            self._topics.pop(topic, None)
            self._ids.pop(topic, None)
            for group in self._groups.values():
                group.plan(self._counts())
            self._has_changed()

    @property
    def topics(self) -> Mapping[str, int]:
        """Topic -> number of partitions."""
        with self.changed:
            return MappingProxyType(self._counts())

    def topic_id(self, topic: str) -> str:
        """The id of a topic; one that is created anew has another one. Empty if there is none."""
        with self.changed:
            return self._ids.get(topic, "")

    def _has_changed(self) -> None:
        self.version += 1
        self.changed.notify_all()

    def give_up(self, group: str, member: Member, partitions: Sequence[TopicPartition]) -> None:
        """A member gives partitions up; those that others own by now stay theirs."""
        with self.changed:
            mine = set(self.group(group).owned(member))
            self.group(group).release([key for key in partitions if key in mine])
            self._has_changed()

    def _counts(self) -> dict[str, int]:
        return {topic: len(logs) for topic, logs in self._topics.items()}

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """One partition's log.

        Raises:
            KeyError: there is no such partition.
        """
        with self.changed:
            logs = self._topics.get(topic, ())
            if not 0 <= partition < len(logs):
                known = ", ".join(sorted(self._topics)) or "none"
                raise KeyError(f"no partition {topic}/{partition}; topics are: {known}")
            return logs[partition]

    def records(self, topic: str, partition: int | None = None) -> list[MemoryRecord]:
        """The records of a topic, or of one of its partitions, in log order."""
        with self.changed:
            chosen = range(len(self._topics.get(topic, ()))) if partition is None else [partition]
            return [record for p in chosen for record in self.log(topic, p).records()]

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> MemoryRecord:
        """Write a record, into the partition of its key (CRC-32) unless one is given.

        Raises:
            PublishFailed: the topic or partition is missing, the record is too large, or a
                test asked for a fault.
        """
        with self.changed:
            self.admit(topic, value, key, headers, partition)
            return self.append(topic, value, key, headers, partition)

    def admit(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> None:
        """Raise PublishFailed where a record would be refused; counts as one attempt."""
        with self.changed:
            logs = self._topics.get(topic)
            if logs is None:
                raise PublishFailed(f"{topic}: unknown topic; create_topic({topic!r}) first")
            if partition is not None and not 0 <= partition < len(logs):
                raise PublishFailed(f"{topic}/{partition}: the topic has {len(logs)} partitions")
            error = self._publish_faults.take(topic)
            if error is not None:
                raise PublishFailed(error)
            size, largest = record_size(key, value, headers), self._largest.get(topic)
            if largest is not None and size > largest:
                raise TooLarge(f"{topic}: a record of {size} bytes, the limit is {largest}")

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> MemoryRecord:
        """Write a record that was admitted."""
        with self.changed:
            logs = self._topics[topic]
            if partition is None:
                number = crc32(key) if key else next(self._next_keyless)
                partition = number % len(logs)
            wall_ms = self.clock.now().wall_ms
            record = logs[partition].append(topic, partition, key, value, headers, wall_ms)
            self._has_changed()
            return record

    # What happens to a log.

    def skip_offsets(self, topic: str, partition: int = 0, count: int = 1) -> None:
        """Leave a hole at the end of a log, as a transaction's marker does."""
        with self.changed:
            self.log(topic, partition).skip(count)
            self._has_changed()

    def compact(self, topic: str, partition: int, offset: int) -> bool:
        """Take one record out of a log; returns whether it was there."""
        with self.changed:
            self._has_changed()
            return self.log(topic, partition).drop(offset)

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Delete what is below offset `start`, as retention does."""
        with self.changed:
            self.log(topic, partition).trim(start)
            self._has_changed()

    # Groups.

    def group(self, name: str) -> Group:
        """A group, made when it is first named."""
        with self.changed:
            return self._groups.setdefault(name, Group())

    def committed(self, group: str, topic: str, partition: int = 0) -> Committed | None:
        """What a group has committed for a partition."""
        with self.changed:
            return self.group(group).committed.get(TopicPartition(topic, partition))

    def commit(
        self, group: str, topic: str, partition: int, position: int, metadata: str = ""
    ) -> None:
        """Commit in a group's name, as an operator's tool does."""
        with self.changed:
            key = TopicPartition(topic, partition)
            self.group(group).committed[key] = Committed(position, metadata)

    def rebalance(self, group: str | None = None) -> None:
        """Take every partition from its owner, through its next poll, and assign it anew.

        Args:
            group: default: all groups.
        """
        with self.changed:
            for each in self._groups.values() if group is None else [self.group(group)]:
                each.rebalance()
            self._has_changed()

    def join(self, group: str, member: Member) -> None:
        """A member joins: from now on it has a share of the partitions."""
        with self.changed:
            self.group(group).join(member, self._counts())
            self._has_changed()

    def leave(self, group: str, member: Member) -> None:
        """A member leaves or dies; what it owned is free at once."""
        with self.changed:
            self.group(group).leave(member, self._counts())
            self._has_changed()

    def expel(self, group: str, member: Member) -> None:
        """A member's session timed out; its next poll reports that."""
        with self.changed:
            self.group(group).expel(member, self._counts())
            self._has_changed()

    def store(
        self, group: str, member: Member, positions: Sequence[tuple[TopicPartition, int, str]]
    ) -> str | None:
        """A member commits; returns why it was refused, or None."""
        with self.changed:
            if member.expelled:
                return "unknown member: it was expelled from the group"
            error = self._commit_faults.take(group)
            if error is not None:
                return error
            if any(len(metadata) > LONGEST_METADATA for _, _, metadata in positions):
                return f"metadata longer than {LONGEST_METADATA} characters"
            stored = self.group(group).committed
            for key, position, metadata in positions:
                stored[key] = Committed(position, metadata)
            return None

    # Faults.

    def fail_publish(
        self, topic: str, error: str = "broker away", times: int | None = None
    ) -> None:
        """Refuse the next writes to a topic; `times=None`: all until `heal`."""
        with self.changed:
            self._publish_faults.put(topic, error, times)

    def fail_commit(self, group: str, error: str = "broker away", times: int | None = None) -> None:
        """Refuse the next commits of a group; `times=None`: all until `heal`."""
        with self.changed:
            self._commit_faults.put(group, error, times)

    def limit_size(self, topic: str, most_bytes: int | None) -> None:
        """Refuse records of more than `most_bytes` (key, value, headers and overhead)."""
        with self.changed:
            if most_bytes is None:
                self._largest.pop(topic, None)
            else:
                self._largest[topic] = most_bytes

    def heal(self) -> None:
        """End every fault; size limits stay."""
        with self.changed:
            self._publish_faults.clear()
            self._commit_faults.clear()


class MemoryPublisher:
    """Implements `ports.Publisher` on a broker in memory.

    Args:
        create_topics: create topics that are written to and do not exist.
    """

    def __init__(self, broker: MemoryBroker, *, create_topics: bool = False) -> None:
        self._broker = broker
        self._create_topics = create_topics
        self._open = True

    def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        on_done: Callable[[BaseException | None], None],
        partition: int | None = None,
    ) -> None:
        """Write one record and report the result, in this call."""
        if not self._open:
            on_done(PublishFailed("the worker has ended"))
            return
        try:
            if self._create_topics and topic not in self._broker.topics:
                self._broker.create_topic(topic)
            self._broker.produce(topic, value, key=key, headers=headers, partition=partition)
        except PublishFailed as exc:
            on_done(exc)
        else:
            on_done(None)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002
        """Do nothing: no write is ever outstanding here."""
        self._open = False


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About what a record takes on the wire."""
    own = sum(len(name.encode()) + len(text or b"") for name, text in headers)
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + own
