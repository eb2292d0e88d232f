"""WorkerMetrics: in a worker, counts events and makes the report that is sent.

Events come in batches on the owner thread, so a record costs its share of a batch. Any thread may
call `report`: one lock, taken once for a batch of events and once for a report, keeps the two
apart.
"""

from __future__ import annotations

import operator
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from ackfloor import __version__
from ackfloor.observe import (
    BatchFailed,
    BreakerClosed,
    BreakerOpened,
    CommitFailed,
    CopySettled,
    DeliveryFailed,
    DeliveryTimedOut,
    Event,
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
    Reason,
    RecordDeadLettered,
    RecordDiscarded,
    RecordHopped,
    RecordParked,
    RecordsAcked,
    RecordsDeleted,
    RecordsLost,
    RecordsReceived,
    RecordsRewound,
    RecordsSkipped,
    RecordWithheld,
    RedeliveriesStarted,
    ReplaysEnded,
    Snapshot,
    StrayExit,
    SuspectCleared,
    SuspectStarted,
    TrialEnded,
)
from ackfloor_monitoring.metrics import metric_definitions as d
from ackfloor_monitoring.metrics.metric_spec import MetricSpec
from ackfloor_monitoring.metrics.tallies import Distribution, Labels, Names, Tally
from ackfloor_monitoring.metrics.user_metrics import UserMetrics
from ackfloor_monitoring.metrics.worker_report import Report, Trace
from ackfloor_monitoring.process_report import process_report

#: Classes of exceptions that keep their name as a label.
MOST_ERRORS = 50
#: The beginning of an error to which the client or the broker gives a name.
KAFKA_ERROR = re.compile(r"_?([A-Z][A-Z0-9_]*):")
UNCONFIRMED = "unconfirmed"
#: Attempts that keep their number as a label.
MOST_ATTEMPTS = 10


class WorkerMetrics:
    """Counts one worker's events.

    Args:
        buckets: other edges for a histogram, by its full name.
        now_s: the wall clock.
        user: the user's own metrics, which go into the report as they are.
    """

    def __init__(
        self,
        buckets: Mapping[str, Iterable[float]] | None = None,
        now_s: Callable[[], float] = time.time,
        user: UserMetrics | None = None,
    ) -> None:
        self._user = user or UserMetrics()
        buckets = buckets or {}
        self._lock = Lock()
        self._started_s = now_s()
        self._tallies = {spec: Tally() for spec in d.COUNTERS}
        self._distributions = {
            spec: Distribution(buckets.get(spec.name, spec.buckets)) for spec in d.HISTOGRAMS
        }
        self._now_s = now_s
        #: The newest trace of each series of what fails.
        self._traces: dict[MetricSpec, dict[Labels, Trace]] = {d.FAILED: {}, d.DURATION: {}}
        self._errors = Names(MOST_ERRORS)
        self._refusals = Names(MOST_ERRORS)
        self._seeded: set[tuple[str, str, str]] = set()
        self._joined = False
        self._snapshot: Snapshot | None = None
        self._counters: dict[type, Callable[[Any], None]] = {
            RecordsReceived: self._received,
            RecordsRewound: self._rewound,
            RecordsSkipped: self._skipped,
            MetadataIgnored: self._metadata_ignored,
            RecordsAcked: self._acked,
            DeliveryFailed: self._failed,
            DeliveryTimedOut: self._timed_out,
            RedeliveriesStarted: self._retried,
            ReplaysEnded: self._replayed,
            RecordParked: self._parked,
            RecordDeadLettered: self._dead_lettered,
            RecordDiscarded: self._discarded,
            RecordHopped: self._hopped,
            LateAnswers: self._late,
            PublishFailed: self._publish_failed,
            PositionsCommitted: self._committed,
            CommitFailed: self._commit_failed,
            PartitionsAssigned: self._assigned,
            PartitionsRevoked: self._revoked,
            RecordsLost: self._lost,
            RecordsDeleted: self._deleted,
            HandlerHeld: self._held,
            SuspectStarted: self._suspect_started,
            SuspectCleared: self._suspect_cleared,
            StrayExit: self._stray_exit,
            KeyNotQuarantined: self._not_quarantined,
            KeyQuarantined: self._quarantined,
            KeyFreed: self._freed,
            QuarantinesTakenOver: self._taken_over,
            CopySettled: self._copy_settled,
            BatchFailed: self._batch_failed,
            BreakerOpened: self._breaker_opened,
            BreakerClosed: self._breaker_closed,
            TrialEnded: self._trial,
            RecordWithheld: self._withheld,
        }

    def observe(self, events: Sequence[Event]) -> None:
        """Count the events of a turn."""
        counters = self._counters
        with self._lock:
            for event in events:
                count = counters.get(type(event))
                if count is not None:
                    count(event)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot: the supervisor reads gauges from it."""
        with self._lock:
            self._snapshot = snapshot
            for handler in snapshot.handlers:
                if handler.consume_timeout_s is not None:
                    self._distributions[d.DURATION].add_edge(handler.consume_timeout_s)
            for partition in snapshot.partitions:
                self._seed(partition.topic, partition.source_topic, partition.handler)

    def report(self) -> bytes:
        """Everything counted so far and the newest snapshot."""
        with self._lock:
            report = Report(
                started_s=self._started_s,
                pid=os.getpid(),
                version=__version__,
                joined=self._joined,
                counters={
                    spec.name: list(tally.values.items()) for spec, tally in self._tallies.items()
                },
                edges={spec.name: list(dist.edges) for spec, dist in self._distributions.items()},
                histograms={
                    spec.name: [
                        (labels, list(series.counts), series.sum)
                        for labels, series in dist.series.items()
                    ]
                    for spec, dist in self._distributions.items()
                },
                traces={spec.name: list(each.items()) for spec, each in self._traces.items()},
                snapshot=self._snapshot,
                user=self._user.text,
            )
        return report.to_bytes()

    @property
    def process_report(self) -> Callable[[], str]:
        """What a handler's process calls for its own metrics; see `ackfloor.observe`."""
        return process_report

    def process_reported(self, pid: int, report: str) -> None:
        """Take the newest report of a handler's process."""
        self._user.process_reported(pid, report)

    def process_ended(self, pid: int) -> None:
        """Keep what a handler's process had counted."""
        self._user.process_ended(pid)

    def _seed(self, topic: str, source: str, handler: str) -> None:
        """Start the counters that alerts watch at 0: an increase from nothing is not seen."""
        key = (topic, source, handler)
        if key in self._seeded:
            return
        self._seeded.add(key)
        self._tallies[d.COMMIT_FAILURES].seed((topic, UNCONFIRMED))
        self._tallies[d.LOST].seed((topic,))
        if topic != source:
            self._tallies[d.DELETED].seed((topic,))
        self._tallies[d.RELEASED].seed(())
        for spec in (d.BREAKER_OPENED, d.GUARD_TRIPS):
            self._tallies[spec].seed((handler,))
        for kind in ("retry", "dlq"):
            self._tallies[d.PUBLISH_FAILURES].seed((source, handler, kind))
        for result in ("handled", "failed"):
            self._tallies[d.REPLAYED].seed((source, handler, result))
        for spec in (d.ACKED, d.TIMED_OUT, d.DISCARDED, d.LATE_ANSWERS):
            self._tallies[spec].seed((source, handler))

    def _count(self, spec: MetricSpec, *labels: str, by: int = 1) -> None:
        self._tallies[spec].add(labels, by)

    # One method for each event.

    def _received(self, event: RecordsReceived) -> None:
        labels = (event.topic, event.handler, "retry" if event.from_tier else "source")
        self._tallies[d.RECEIVED].add(labels, event.count)
        self._tallies[d.RECEIVED_BYTES].add(labels, event.bytes)

    def _acked(self, event: RecordsAcked) -> None:
        labels = (event.topic, event.handler)
        self._tallies[d.ACKED].add(labels, len(event.durations_s))
        distributions = self._distributions
        distributions[d.DURATION].add_all((*labels, "acked"), event.durations_s)
        distributions[d.QUEUE_WAIT].add_all(labels, event.waits_s)
        since_read_s = list(map(operator.add, event.waits_s, event.durations_s))
        distributions[d.ACK_LATENCY].add_all(labels, since_read_s)
        distributions[d.END_TO_END].add_all(labels, event.latencies_s)

    def _failed(self, event: DeliveryFailed) -> None:
        labels = (event.topic, event.handler)
        kind = (*labels, self._errors.of(event.error_type))
        self._count(d.FAILED, *kind)
        outcome = (*labels, "timed_out" if event.reason is Reason.TIMEOUT else "failed")
        self._distributions[d.DURATION].add(outcome, event.duration_s)
        if event.trace_id:
            trace = Trace(event.trace_id, max(event.duration_s, 0.0), self._now_s())
            self._traces[d.FAILED][kind] = self._traces[d.DURATION][outcome] = trace

    def _timed_out(self, event: DeliveryTimedOut) -> None:
        labels = (event.topic, event.handler)
        self._count(d.TIMED_OUT, *labels)
        self._distributions[d.TIMEOUT_LATENESS].add(labels, event.late_by_s)

    def _retried(self, event: RedeliveriesStarted) -> None:
        labels = (event.topic, event.handler)
        for attempt, count in Counter(event.attempts).items():
            name = str(attempt) if attempt <= MOST_ATTEMPTS else f">{MOST_ATTEMPTS}"
            self._count(d.RETRIED, *labels, name, by=count)
        self._distributions[d.RETRY_LATENESS].add_all(labels, event.lateness_s)

    def _replayed(self, event: ReplaysEnded) -> None:
        for result, count in (("handled", event.handled), ("failed", event.failed)):
            self._count(d.REPLAYED, event.topic, event.handler, result, by=count)

    def _parked(self, event: RecordParked) -> None:
        self._count(d.PARKED, event.topic, event.handler, event.reason.value)
        if event.reason in {Reason.BEHIND, Reason.HELD}:
            # There is no failure from which a delay could be counted.
            return
        labels = (event.topic, event.handler)
        self._distributions[d.PARK_DELAY].add(labels, event.since_failure_s)

    def _dead_lettered(self, event: RecordDeadLettered) -> None:
        error = self._errors.of(event.error_type)
        self._count(d.DEAD_LETTERED, event.topic, event.handler, event.reason.value, error)

    def _discarded(self, event: RecordDiscarded) -> None:
        self._count(d.DISCARDED, event.topic, event.handler)

    def _hopped(self, event: RecordHopped) -> None:
        self._count(d.HOPPED, event.topic, event.handler)

    def _late(self, event: LateAnswers) -> None:
        self._count(d.LATE_ANSWERS, event.topic, event.handler, by=event.count)

    def _publish_failed(self, event: PublishFailed) -> None:
        kind = "dlq" if event.target.endswith("--dlq") else "retry"
        self._count(d.PUBLISH_FAILURES, event.topic, event.handler, kind)

    def _committed(self, event: PositionsCommitted) -> None:
        self._count(d.COMMITS, by=event.count)

    def _commit_failed(self, event: CommitFailed) -> None:
        named = KAFKA_ERROR.match(event.reason)
        reason = self._refusals.of(named[1]) if named else UNCONFIRMED
        self._count(d.COMMIT_FAILURES, event.topic, reason)

    def _assigned(self, _event: PartitionsAssigned) -> None:
        self._joined = True
        self._count(d.REBALANCES, "assigned")

    def _revoked(self, event: PartitionsRevoked) -> None:
        if event.lost:
            self._joined = False
        self._count(d.REBALANCES, "lost" if event.lost else "revoked")
        self._count(d.RELEASED, by=event.open_count)

    def _lost(self, event: RecordsLost) -> None:
        self._count(d.LOST, event.topic, by=event.count)

    def _deleted(self, event: RecordsDeleted) -> None:
        self._count(d.DELETED, event.topic, by=event.lost)

    def _skipped(self, event: RecordsSkipped) -> None:
        self._count(d.SKIPPED, event.topic, event.handler, by=event.count)

    def _rewound(self, event: RecordsRewound) -> None:
        self._count(d.REWOUND, event.topic, event.handler, by=event.count)

    def _metadata_ignored(self, event: MetadataIgnored) -> None:
        self._count(d.METADATA_IGNORED, event.topic)

    def _held(self, event: HandlerHeld) -> None:
        self._count(d.PAUSES, event.handler)

    def _suspect_started(self, event: SuspectStarted) -> None:
        what = "started_alone" if event.alone else "started"
        self._count(d.SUSPECTS, event.topic, event.handler, what)

    def _suspect_cleared(self, event: SuspectCleared) -> None:
        self._count(d.SUSPECTS, event.topic, event.handler, "cleared")

    def _stray_exit(self, _event: StrayExit) -> None:
        self._count(d.STRAY_EXITS)

    def _not_quarantined(self, event: KeyNotQuarantined) -> None:
        self._count(d.NOT_QUARANTINED, event.topic, event.handler, event.why)

    def _quarantined(self, event: KeyQuarantined) -> None:
        self._count(d.QUARANTINES, event.topic, event.handler, "begun")

    def _freed(self, event: KeyFreed) -> None:
        self._count(d.QUARANTINES, event.topic, event.handler, "ended")

    def _taken_over(self, event: QuarantinesTakenOver) -> None:
        self._count(d.QUARANTINES, event.topic, event.handler, "taken_over", by=event.count)

    def _copy_settled(self, event: CopySettled) -> None:
        self._count(d.COPIES_SETTLED, event.topic, event.handler)

    def _batch_failed(self, event: BatchFailed) -> None:
        self._count(d.BATCH_FAILURES, event.topic, event.handler)

    # The circuit breaker's, each with its deprecated alias.

    def _breaker_opened(self, event: BreakerOpened) -> None:
        for spec in (d.BREAKER_OPENED, d.GUARD_TRIPS):
            self._count(spec, event.handler)

    def _breaker_closed(self, event: BreakerClosed) -> None:
        self._count(d.BREAKER_CLOSED, event.handler, event.why.replace(" ", "_"))
        self._count(d.GUARD_RESETS, event.handler)

    def _trial(self, event: TrialEnded) -> None:
        outcome = "failed" if event.error_type else "handled"
        for spec in (d.BREAKER_TRIALS, d.GUARD_PROBES):
            self._count(spec, event.handler, outcome)

    def _withheld(self, event: RecordWithheld) -> None:
        for spec in (d.WITHHELD, d.PUT_BACK):
            self._count(spec, event.topic, event.handler)
