"""Commands: what the engine asks the runtime to do, with all that is needed to do it."""

from __future__ import annotations

from dataclasses import dataclass

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.core.parking.transaction import Transact
from ackfloor.core.records.record import CommitPosition, TopicPartition
from ackfloor.core.records.tracked_delivery import TrackedDelivery


@dataclass(frozen=True, slots=True)
class Cancel:
    """The delivery's time is up: cancel its handler, or give its slot to a new worker."""

    delivery: TrackedDelivery


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Have a handler's executor give back what it has not started."""

    handler: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Write a record to its retry or dead-letter topic; the delivery report settles it."""

    write: PendingWrite


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these positions in one request."""

    positions: tuple[CommitPosition, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop fetching these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch these partitions again, each from its next unread position."""

    positions: tuple[tuple[TopicPartition, int], ...]


Command = Cancel | TakeBack | Publish | Transact | Commit | Pause | Resume
