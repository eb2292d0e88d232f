"""Observing a worker: the events, the snapshot, and the protocols of who is told.

An observer is any object with two methods:

    class Printer:
        def observe(self, events: Sequence[Event]) -> None:
            for event in events:
                if isinstance(event, RecordDeadLettered):
                    print(event.topic, event.partition, event.offset, event.reason.value)

        def snapshot(self, snapshot: Snapshot) -> None:
            print(snapshot.state, snapshot.open_count)

Both run on the worker's owner thread, between two polls: be quick, do no I/O, and keep what
must wait for a thread of your own. What an observer raises is logged once for its kind and never
reaches the loop. Events come in order and the hot ones are batches (`RecordsAcked` carries lists
that belong to all observers: read them, don't change them). Snapshots are immutable and may be
kept and read by any thread.

What `ackfloor run` sends to its one monitoring address comes from a `MonitoringPlugin`, found
through the entry point group `ackfloor.monitoring`.
"""

from __future__ import annotations

from ackfloor.control import CONTROL_BYTES, Control, ControlRequest, SettingsState
from ackfloor.core.acks.progress import Progress
from ackfloor.core.messages.events import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    CommitFailed,
    DeliveryFailed,
    DeliveryTimedOut,
    Event,
    GuardProbed,
    GuardReset,
    GuardTripped,
    HandlerHeld,
    LateAnswers,
    MetadataIgnored,
    PartitionsAssigned,
    PartitionsRevoked,
    PositionsCommitted,
    PublishFailed,
    RecordDeadLettered,
    RecordDiscarded,
    RecordHopped,
    RecordParked,
    RecordPutBack,
    RecordsAcked,
    RecordsDeleted,
    RecordsLost,
    RecordsReceived,
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
    BreakerSnapshot,
    Fault,
    HandlerSnapshot,
    PartitionSnapshot,
    RunningDelivery,
    Snapshot,
)
from ackfloor.ports import MonitoringPlugin, Observer, RunMonitor, WorkerMonitor

__all__ = [
    "CONTROL_BYTES",
    "BatchFailed",
    "BreakerClosed",
    "BreakerOpened",
    "BreakerSnapshot",
    "CommitFailed",
    "Control",
    "ControlRequest",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Event",
    "Fault",
    "GuardProbed",
    "GuardReset",
    "GuardTripped",
    "HandlerHeld",
    "HandlerSnapshot",
    "LateAnswers",
    "MetadataIgnored",
    "MonitoringPlugin",
    "Observer",
    "PartitionSnapshot",
    "PartitionsAssigned",
    "PartitionsRevoked",
    "PauseReason",
    "PositionsCommitted",
    "Progress",
    "PublishFailed",
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
