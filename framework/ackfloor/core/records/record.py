"""Records, offsets, positions and times: the types that every other core file uses.

Two words are kept apart everywhere: an *offset* is a record's own place in its partition, a
*position* is the next offset to read, which is what Kafka commits. A floor is a position.

Time comes in as `Now`: monotonic seconds for everything that measures (deadlines, waits),
wall-clock milliseconds for everything that is written to a record or read from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, "bytes | None"]]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Now(NamedTuple):
    """One reading of both clocks."""

    mono_s: float
    wall_ms: int


class Record(Protocol):
    """What Kafka stores, read through methods.

    The shape is that of `confluent_kafka.Message`, so that a polled batch reaches the engine
    without one copy per record. `len(record)` is the size of its value in bytes.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...
    def __len__(self) -> int: ...


class Headless:
    """A record whose headers the client can't hand out: everything else of it.

    The client fails where the name of a header is not UTF-8. It must not be asked a second time: it
    returns broken memory then.
    """

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    def topic(self) -> str:
        return self._record.topic()

    def partition(self) -> int:
        return self._record.partition()

    def offset(self) -> int:
        return self._record.offset()

    def key(self) -> bytes | None:
        return self._record.key()

    def value(self) -> bytes | None:
        return self._record.value()

    def headers(self) -> Headers | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return self._record.timestamp()

    def leader_epoch(self) -> int | None:
        return self._record.leader_epoch()

    def __len__(self) -> int:
        return len(self._record)


class Origin(NamedTuple):
    """Where a record was first delivered from, before any retry tier."""

    topic: str
    partition: int
    offset: int


class ParkedRecord(NamedTuple):
    """A record with a key that waits in a retry topic, as its partition's next owner finds it.

    `offset` is its own there; `origin_offset` where it was first delivered, in the same partition
    of the source topic; `attempt` how many deliveries it had since it was redriven last, and
    `replays` how often it was. `origin_timestamp_ms` is that of the record there, None where it is
    not known: another record at its offset has another one. `timestamp_ms` is its own.
    `failed_ms` is when it failed for the first time, None where that is not known, or where it was
    redriven since.
    """

    offset: int
    key: bytes
    origin_offset: int
    attempt: int
    replays: int = 0
    origin_timestamp_ms: int | None = None
    timestamp_ms: int = 0
    failed_ms: int | None = None


class StartPosition(NamedTuple):
    """Where a newly assigned partition is read from, and what its last commit said.

    `committed` is False where the group had no commit: the position is then committed at once,
    or a `latest` group that was idle would skip what came meanwhile. `lost` counts the offsets
    between the committed position and a log's start that has moved beyond it (retention).
    `topic_id` is Kafka's, "" where it is not known; `log_end` the first offset that was not
    readable yet, None where that is unknown. `parked` is there for the retry topics of handlers
    that quarantine: every record with a key from `position` to the log's end that is not settled,
    and was first delivered in this partition of the source topic; `others` is how many there are
    that have no key, or were first delivered elsewhere. `leader_epoch` is what the commit of this
    position said, -1 where it said none.
    `absent` is there for the source topics of such handlers: which of their retry topics do not
    exist, None where that was not asked.
    """

    topic: str
    partition: int
    position: int
    committed: bool = True
    metadata: str = ""
    lost: int = 0
    topic_id: str = ""
    log_end: int | None = None
    parked: tuple[ParkedRecord, ...] = ()
    others: int = 0
    leader_epoch: int = -1
    absent: frozenset[str] | None = None


class CommitPosition(NamedTuple):
    """One partition's share of a commit: its floor, and the epoch that makes it valid.

    A commit whose epoch is not the partition's current one is dropped, because Kafka itself
    does not stop a former owner from overwriting the new owner's commit. `metadata` holds what is
    settled above the position; `settled_count` is how much was settled in this epoch by then.
    `leader_epoch` is that of the log at the position, -1 where it is not known.
    """

    topic: str
    partition: int
    position: int
    metadata: str
    epoch: int
    settled_count: int = 0
    leader_epoch: int = -1


class Failure(NamedTuple):
    """What went wrong in a handler, as text: the exception itself never leaves its thread."""

    error_type: str
    message: str
    stack: str = ""
    fingerprint: str = ""
