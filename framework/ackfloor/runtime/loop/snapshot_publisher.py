"""SnapshotPublisher: what observers of a worker get: each turn's events, and snapshots."""

from __future__ import annotations

from ackfloor.core.engine.engine import Engine
from ackfloor.core.messages.events import StrayExit
from ackfloor.core.records.record import Now
from ackfloor.core.state.snapshot import Snapshot
from ackfloor.ports import Source
from ackfloor.runtime.logging.delivery_log import DeliveryLog
from ackfloor.runtime.logging.fault_log import FaultLog
from ackfloor.runtime.loop.executors import Executors
from ackfloor.runtime.reporting.observers import Observers
from ackfloor.runtime.reporting.snapshot_builder import build_snapshot
from ackfloor.runtime.reporting.snapshot_schedule import Freshness
from ackfloor.runtime.reporting.turn_times import TurnTimes


class SnapshotPublisher:
    """From the engine to the log and the observers; called on the owner thread.

    Attributes:
        status: what the worker is doing: starting, running, draining, stopped.
        subscribed: whether the source can be asked about what it reads.
        latest: the last snapshot; None before the first.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        executors: Executors,
        observers: Observers,
        delivery_log: DeliveryLog,
        times: TurnTimes,
        *,
        group: str,
    ) -> None:
        self._engine = engine
        self._source = source
        self._executors = executors
        self._observers = observers
        self._delivery_log = delivery_log
        self._times = times
        self._group = group
        self._freshness = Freshness()
        self._fault_log = FaultLog()
        self.status = "starting"
        self.subscribed = False
        self.latest: Snapshot | None = None

    def mark_changed(self) -> None:
        """Something has happened: the next snapshot will differ."""
        self._freshness.changed = True

    def set_status(self, status: str) -> None:
        """The worker does something else from now on."""
        self.status = status
        self.mark_changed()

    def stray(self, exc: BaseException, now_s: float) -> None:
        """An exit left a task or a callback on the event loop."""
        self._engine.state.events.append(StrayExit(type(exc).__qualname__))
        self._delivery_log.stray(exc, now_s)

    def publish(self, now: Now) -> None:
        """Pass on what has happened, and a snapshot where one is due."""
        events = self._engine.take_events(now)
        if events:
            self._delivery_log.happened(events, now.mono_s)
            self._observers.observe(events)
            self.mark_changed()
        if self._engine.doubtful(now):
            self._source.look_closer()
        if self._freshness.due(now.mono_s):
            self._publish_snapshot(now)

    def publish_last(self, now: Now) -> None:
        """The last events, and a last snapshot, due or not."""
        self._freshness.expire()
        self.publish(now)

    def _publish_snapshot(self, now: Now) -> None:
        self._delivery_log.flush(now.mono_s)
        self._engine.troubled(self._source.troubles(), now)
        self._executors.note_faults(self._engine.faults, now)
        self.latest = build_snapshot(
            self._engine.state,
            self._executors.by_name,
            self._source if self.subscribed else None,
            self._times,
            now,
            group=self._group,
            status=self.status,
        )
        # All of them: one that a snapshot has no room for is not over.
        self._fault_log.log_changes(self._engine.faults.all(), now.mono_s, now.wall_ms)
        self._observers.snapshot(self.latest)
        self._freshness.made(self.latest, now.mono_s)
