"""Observing a worker: the events, the snapshot, and the protocols of observers.

An observer is any object with two methods:

    class Printer:
        def observe(self, events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event, RecordDeadLettered):
                    print(event.topic, event.partition, event.offset, event.reason.value)

        def snapshot(self, snapshot: Snapshot) -> None:
            print(snapshot.state, snapshot.open_count)

Both run on the worker's owner thread, between two polls: be quick, do no I/O, and keep what
waits for a thread of your own. An observer's exception is logged once for each type and does not
stop the loop. Events come in order, and frequent ones are batches (`RecordsAcked` has lists that
all observers share: don't change them). Snapshots are immutable; any thread may keep and read them.

A `MonitoringPlugin`, found through the entry point group `ackfloor.monitoring`, serves the
monitoring address of `ackfloor run`. A worker's monitor that is a `ProcessMonitor` as well hears
from the processes of handlers.
"""

from __future__ import annotations

from ackfloor.control import (
    CONTROL_BYTES,
    Control,
    ControlRequest,
    PageAnswer,
    PageRequest,
    SettingsState,
)
from ackfloor.core.acks.progress import Progress
from ackfloor.core.messages.events import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    CommitFailed,
    CopySettled,
    DeliveryFailed,
    DeliveryTimedOut,
    Event,
    GuardProbed,
    GuardReset,
    GuardTripped,
    HandlerHeld,
    KeyFreed,
    KeyNotQuarantined,
    KeyQuarantined,
    LateAnswers,
    MetadataIgnored,
    PartitionsAssigned,
    PartitionsRevoked,
    PositionsCommitted,
    PublishFailed,
    QuarantinesTakenOver,
    RecordDeadLettered,
    RecordDiscarded,
    RecordHopped,
    RecordParked,
    RecordPutBack,
    RecordsAcked,
    RecordsDeleted,
    RecordsLost,
    RecordsReceived,
    RecordsRewound,
    RecordsSkipped,
    RecordWithheld,
    RedeliveriesStarted,
    ReplaysEnded,
    StrayExit,
    SuspectCleared,
    SuspectStarted,
    TrialEnded,
)
from ackfloor.core.queues.flow_limits import PauseReason
from ackfloor.core.records.envelope import Reason
from ackfloor.core.records.record import TopicPartition
from ackfloor.core.state.snapshot import (
    BlockedLane,
    BlockedLanes,
    BreakerSnapshot,
    Fault,
    HandlerSnapshot,
    LongSlots,
    NoisyKey,
    NoisyKeys,
    PartitionSnapshot,
    RateSnapshot,
    RunningDelivery,
    Snapshot,
)
from ackfloor.ports import (
    MonitoringPlugin,
    Observer,
    PageMonitor,
    ProcessMonitor,
    RunMonitor,
    WorkerMonitor,
)

__all__ = [
    "CONTROL_BYTES",
    "BatchFailed",
    "BlockedLane",
    "BlockedLanes",
    "BreakerClosed",
    "BreakerOpened",
    "BreakerSnapshot",
    "CommitFailed",
    "Control",
    "ControlRequest",
    "CopySettled",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Event",
    "Fault",
    "GuardProbed",
    "GuardReset",
    "GuardTripped",
    "HandlerHeld",
    "HandlerSnapshot",
    "KeyFreed",
    "KeyNotQuarantined",
    "KeyQuarantined",
    "LateAnswers",
    "LongSlots",
    "MetadataIgnored",
    "MonitoringPlugin",
    "NoisyKey",
    "NoisyKeys",
    "Observer",
    "PageAnswer",
    "PageMonitor",
    "PageRequest",
    "PartitionSnapshot",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "PauseReason",
    "PositionsCommitted",
    "ProcessMonitor",
    "Progress",
    "PublishFailed",
    "QuarantinesTakenOver",
    "RateSnapshot",
    "Reason",
    "RecordDeadLettered",
    "RecordDiscarded",
    "RecordHopped",
    "RecordParked",
    "RecordPutBack",
    "RecordWithheld",
    "RecordsAcked",
    "RecordsDeleted",
    "RecordsLost",
    "RecordsReceived",
    "RecordsRewound",
    "RecordsSkipped",
    "RedeliveriesStarted",
    "ReplaysEnded",
    "RunMonitor",
    "RunningDelivery",
    "SettingsState",
    "Snapshot",
    "StrayExit",
    "SuspectCleared",
    "SuspectStarted",
    "TopicPartition",
    "TrialEnded",
    "WorkerMonitor",
]
