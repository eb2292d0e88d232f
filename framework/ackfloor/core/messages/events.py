"""Events: what has happened, for metrics, logs and tests; nothing is decided by them.

Those of the hot path are batches: one object for many records. Those of each record that fails are
tuples, which are made in a third of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import Origin, TopicPartition


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """Records were read and registered."""

    topic: str
    partition: int
    handler: str
    count: int
    bytes: int
    from_tier: bool


@dataclass(frozen=True, slots=True)
class RecordsRewound:
    """Records left memory unhandled, and are read again: too much waited behind failed ones."""

    topic: str
    partition: int
    handler: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """Records were read again that an earlier assignment had settled above the floor."""

    topic: str
    partition: int
    handler: str
    count: int


@dataclass(frozen=True, slots=True)
class MetadataIgnored:
    """A commit's metadata was rejected: records settled above the floor are delivered again."""

    topic: str
    partition: int
    position: int
    why: str


@dataclass(frozen=True, slots=True)
class RecordsAcked:
    """Deliveries of one handler ended as handled, with what was measured of each (seconds).

    Attributes:
        durations_s: handler start to answer.
        waits_s: poll to handler start.
        latencies_s: record timestamp to answer.
    """

    topic: str
    handler: str
    durations_s: list[float]
    waits_s: list[float]
    latencies_s: list[float]


class DeliveryFailed(NamedTuple):
    """A delivery failed; another event says what becomes of its record."""

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    reason: Reason
    error_type: str
    error_message: str
    duration_s: float
    #: The topic that partition and offset belong to: the source, or a retry tier.
    read_from: str = ""
    #: The trace that the record's producer began, where it is kept.
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryTimedOut:
    """A delivery outlived its consume timeout; noticed `late_by_s` after its deadline."""

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    late_by_s: float


@dataclass(frozen=True, slots=True)
class RedeliveriesStarted:
    """Redeliveries ended; how late each had started after its due time."""

    topic: str
    handler: str
    attempts: list[int]
    lateness_s: list[float]


@dataclass(frozen=True, slots=True)
class ReplaysEnded:
    """First deliveries of replayed dead letters ended; what was discarded counts as handled."""

    topic: str
    handler: str
    handled: int
    failed: int


class RecordParked(NamedTuple):
    """A record is durable in a retry tier and has left its partition."""

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    reason: Reason
    tier: str
    wait_s: float
    since_failure_s: float


class RecordDeadLettered(NamedTuple):
    """A record is durable in the dead-letter topic and has left its partition."""

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    reason: Reason
    error_type: str
    #: The topic that partition and offset belong to: the source, or a retry tier.
    read_from: str = ""
    #: Whether an operator asked for it.
    by_operator: bool = False


@dataclass(frozen=True, slots=True)
class SuspectStarted:
    """A record that was in flight when a worker process died is run again.

    `crashes` is how many processes died with it; `alone` where nothing else runs beside it.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    crashes: int
    alone: bool
    #: The topic that partition and offset belong to: the source, or a retry tier.
    read_from: str = ""


@dataclass(frozen=True, slots=True)
class SuspectCleared:
    """A suspect ended without killing its process."""

    topic: str
    handler: str


@dataclass(frozen=True, slots=True)
class RecordDiscarded:
    """A handler discarded a record, or an operator did.

    `origin` is where the record was first, of what an operator discarded.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    reason: str
    read_from: str = ""
    by_operator: bool = False
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class CopySettled:
    """A record of a quarantined key was settled as one of several copies.

    Another copy of it is open, or it has been handled or dead-lettered.
    """

    topic: str
    partition: int
    handler: str


@dataclass(frozen=True, slots=True)
class KeyNotQuarantined:
    """A record failed whose key could not be quarantined: it blocks its lane instead.

    `why`: "full", the worker has as many such keys as it may; or "partitions", a retry topic has
    fewer partitions than its source.
    """

    topic: str
    partition: int
    handler: str
    why: str


@dataclass(frozen=True, slots=True)
class KeyQuarantined:
    """A key is quarantined: a record of it is in a retry topic, and the others wait behind it.

    `offset` is that record's in the source topic.
    """

    topic: str
    partition: int
    handler: str
    offset: int


@dataclass(frozen=True, slots=True)
class KeyFreed:
    """Nothing of a quarantined key is left in retry topics: its records are handled as they come.

    Attributes:
        offset: that of the record for which it was quarantined, as far as this worker knows.
        after_s: seconds since then, or since this worker has had it.
    """

    topic: str
    partition: int
    handler: str
    offset: int
    after_s: float


@dataclass(frozen=True, slots=True)
class QuarantinesTakenOver:
    """A partition came of which `count` keys are quarantined already."""

    topic: str
    partition: int
    handler: str
    count: int


@dataclass(frozen=True, slots=True)
class RecordHopped:
    """A record with a long explicit wait moved on to its next tier."""

    topic: str
    handler: str
    tier: str


@dataclass(frozen=True, slots=True)
class LateAnswers:
    """Answers that came after their delivery had ended; they changed nothing."""

    topic: str
    handler: str
    count: int


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """A record could not be parked; it stays open, and the write is retried in `retry_in_s`."""

    topic: str
    partition: int
    offset: int
    handler: str
    target: str
    error: str
    retry_in_s: float
    attempt: int = 0
    #: The topic that partition and offset belong to: the source, or a retry tier.
    read_from: str = ""
    #: How often the write of this record has failed by now.
    tries: int = 1


@dataclass(frozen=True, slots=True)
class PositionsCommitted:
    """A commit was confirmed."""

    count: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A commit was refused or lost for one partition; it is sent again from current state."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """Partitions came to this worker."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """Partitions left this worker; `lost` where they were taken without warning.

    `open_count` records were not settled and will come again, here or elsewhere.
    """

    partitions: tuple[TopicPartition, ...]
    lost: bool
    open_count: int


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A call with several records failed: each of them is tried alone, at once.

    Attributes:
        count: how many had no answer.
    """

    topic: str
    handler: str
    count: int
    error_type: str
    error_message: str


@dataclass(frozen=True, slots=True)
class HandlerHeld:
    """A handler asked for a pause: its dependency is unavailable."""

    handler: str
    duration_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """The log no longer holds what was to be read next (retention): never delivered here."""

    topic: str
    partition: int
    count: int


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """A retry topic was deleted with records in it, of partitions that this worker reads.

    Attributes:
        lost: so many were not read yet and are lost, as far as is known. Reported once more for
            those that were read and not handled when the worker had to end.
        kept: so many had been read before: they are handled when they are due.
    """

    topic: str
    lost: int
    kept: int


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """So many different records of a handler failed in a row that only trials are started.

    Attributes:
        failing: how many did; 0 where an operator opened it.
    """

    handler: str
    failing: int
    error_type: str
    error_message: str

    @property
    def sample(self) -> int:
        """As `failing`: none of them succeeded. For one release, from the flood guard."""
        return self.failing


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial of a handler whose breaker is not closed ended; without an error type it succeeded.

    Topic, partition and offset are its record's origin.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """A handler runs everything again.

    Attributes:
        after_s: seconds since its breaker opened.
        why: "recovered", "operator", "gave in" (nothing but redeliveries for long), "disabled",
            "left" (its partitions have gone).
    """

    handler: str
    after_s: float
    why: str = "recovered"


@dataclass(frozen=True, slots=True)
class RecordWithheld:
    """A delivery failed while its handler's breaker was not closed: the same attempt comes again.

    Attributes:
        topic: the source topic.
        read_from: the topic that the record was read from.
    """

    topic: str
    partition: int
    offset: int
    handler: str
    attempt: int
    read_from: str


@dataclass(frozen=True, slots=True)
class StrayExit:
    """A task or callback raised `SystemExit` or the like; the event loop goes on, no record fails.

    A handler that awaited the task got the same exception, and failed with it.
    """

    error_type: str


Event = (
    RecordsReceived
    | RecordsRewound
    | RecordsSkipped
    | MetadataIgnored
    | RecordsAcked
    | DeliveryFailed
    | DeliveryTimedOut
    | RedeliveriesStarted
    | ReplaysEnded
    | RecordParked
    | RecordDeadLettered
    | SuspectStarted
    | SuspectCleared
    | RecordDiscarded
    | CopySettled
    | KeyNotQuarantined
    | KeyQuarantined
    | KeyFreed
    | QuarantinesTakenOver
    | RecordHopped
    | LateAnswers
    | PublishFailed
    | PositionsCommitted
    | CommitFailed
    | PartitionsAssigned
    | PartitionsRevoked
    | RecordsLost
    | RecordsDeleted
    | HandlerHeld
    | BatchFailed
    | BreakerOpened
    | TrialEnded
    | BreakerClosed
    | RecordWithheld
    | StrayExit
)

#: Their names before there was a circuit breaker, for one release.
GuardTripped = BreakerOpened
GuardProbed = TrialEnded
GuardReset = BreakerClosed
RecordPutBack = RecordWithheld
