"""The table of metrics: those counted from events; `gauges` has those of the snapshot.

`METRICS` is all of them, in the order of the exposition and of docs/reference/metrics.md.
"""

from __future__ import annotations

from functools import partial

from ackfloor_monitoring.metrics import gauges as g
from ackfloor_monitoring.metrics.metric_spec import HANDLER, MetricSpec, counter, gauge, histogram

FLOW, LATENCY, FAULTS, RUN = "Flow", "Latency", "Faults", "Run"
_flow = partial(counter, FLOW)
_latency = partial(histogram, LATENCY)
_fault = partial(counter, FAULTS)
_run_gauge = partial(gauge, RUN)
_run_counter = partial(counter, RUN)

#: A handler's own time; the consume timeouts in force are added as edges while running.
HANDLER_SECONDS = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
WAIT_SECONDS = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
END_TO_END_SECONDS = (
    *(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0),
)
#: How late something happened; the limits are 100 ms for timeouts, 250 ms for retries.
LATENESS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0)

RECEIVED = _flow(
    "messages_received",
    (*HANDLER, "via"),
    "Records read and registered; `via` is `source` or `retry` (read from a retry tier).",
)
RECEIVED_BYTES = _flow(
    "received_bytes", (*HANDLER, "via"), "Bytes of the values of the records received."
)
ACKED = _flow("messages_acked", HANDLER, "Deliveries that ended as handled.")
FAILED = _flow(
    "messages_failed",
    (*HANDLER, "error"),
    "Deliveries that ended without being handled, timeouts (`ConsumeTimeout`) included; `error` "
    "is the exception's class, of which the first 50 keep their name and the rest are `other`.",
)
TIMED_OUT = _flow("messages_timed_out", HANDLER, "Deliveries that outlived their consume timeout.")
PARKED = _flow(
    "messages_parked",
    (*HANDLER, "reason"),
    "Records that became durable in a retry tier, by the header `ackfloor.reason`. With `behind` "
    "and `held` they did not fail: they wait for another record of their key.",
)
COPIES_SETTLED = _flow(
    "messages_copies_settled",
    HANDLER,
    "Records of quarantined keys that were settled as one of several copies: another copy is open, "
    "or its record was handled or dead-lettered.",
)
RETRIED = _flow(
    "messages_retried",
    (*HANDLER, "attempt"),
    "Redeliveries that ended, by attempt (2 is the first redelivery; beyond 10: `>10`). The first "
    "delivery of a replayed dead letter is none.",
)
REPLAYED = _flow(
    "messages_replayed",
    (*HANDLER, "result"),
    "Replayed dead letters that were read from a retry tier and whose first delivery ended; "
    "`result` is `handled` or `failed`. What was replayed to its source topic counts as received "
    "there.",
)
HOPPED = _flow(
    "messages_hopped", HANDLER, "Records with a long wait that moved on to their next tier."
)
DEAD_LETTERED = _flow(
    "messages_dead_lettered",
    (*HANDLER, "reason", "error"),
    "Records that became durable in the dead-letter topic; `error` as for failed messages.",
)
DISCARDED = _flow("messages_discarded", HANDLER, "Records dropped by an explicit word of the user.")
LATE_ANSWERS = _flow(
    "late_answers",
    HANDLER,
    "Answers that came after their delivery had ended, and changed nothing.",
)

BATCH_FAILURES = _flow(
    "batch_failures",
    HANDLER,
    "Calls with several records that failed as a whole: each record without an answer is tried "
    "alone, at once, and spends no attempt. A call that timed out is none of these.",
)
WITHHELD = _flow(
    "messages_withheld",
    HANDLER,
    "Deliveries that failed while the handler's circuit breaker was not closed, or was about to "
    "open, and whose records were written nowhere: the same attempt comes again.",
)
PUT_BACK = _flow(
    "messages_put_back",
    HANDLER,
    "Deprecated alias of `ackfloor_messages_withheld_total`, for one release.",
)

DURATION = _latency(
    "handler_duration_seconds",
    (*HANDLER, "outcome"),
    "Start of the handler to its answer; `outcome` is `acked`, `failed` or `timed_out`. Every "
    "consume timeout in force is a bucket edge.",
    HANDLER_SECONDS,
)
QUEUE_WAIT = _latency(
    "queue_wait_seconds",
    HANDLER,
    "Read from Kafka to start of the handler, of what was handled; for a redelivery this "
    "includes the wait in its tier that was left when it was read.",
    WAIT_SECONDS,
)
ACK_LATENCY = _latency(
    "ack_latency_seconds",
    HANDLER,
    "Read from Kafka to the answer, of what was handled: the wait and the handler's time together.",
    WAIT_SECONDS,
)
END_TO_END = _latency(
    "end_to_end_latency_seconds",
    HANDLER,
    "Timestamp of the record to its answer, of what was handled; a record read from a retry "
    "tier has the time of its parking as timestamp.",
    END_TO_END_SECONDS,
)
RETRY_LATENESS = _latency(
    "retry_lateness_seconds",
    HANDLER,
    "Due time of a redelivery to the start of its handler.",
    LATENESS_SECONDS,
)
TIMEOUT_LATENESS = _latency(
    "timeout_lateness_seconds",
    HANDLER,
    "Deadline of a delivery to the moment it was ended.",
    LATENESS_SECONDS,
)
PARK_DELAY = _latency(
    "park_delay_seconds",
    HANDLER,
    "Failure of a delivery to the broker's confirmation that its record is in a retry tier.",
    LATENESS_SECONDS,
)

SKIPPED = _flow(
    "messages_skipped",
    HANDLER,
    "Records read again after a restart, crash or rebalance, and not handled again: they were "
    "handled or parked before, and the last commit says so. None of them is lost.",
)
REWOUND = _flow(
    "messages_rewound",
    HANDLER,
    "Records that left memory unhandled, to be read again: too much waited behind failed ones.",
)
COMMITS = _fault("commits", ("group",), "Positions whose commit was confirmed.")
COMMIT_FAILURES = _fault(
    "commit_failures",
    ("group", "topic", "reason"),
    "Commits of one partition that were refused or lost; each is sent again. `reason` is the name "
    "that Kafka's client has for the error, or `unconfirmed` where no answer came.",
)
PUBLISH_FAILURES = _fault(
    "publish_failures",
    (*HANDLER, "kind"),
    "Writes to a retry tier (`kind` is `retry`) or the dead-letter topic (`dlq`) that failed; "
    "the record stays open and is tried again.",
)
REBALANCES = _fault(
    "rebalances",
    ("group", "event"),
    "Changes of this worker's assignment; `event` is `assigned`, `revoked` or `lost`.",
)
RELEASED = _fault(
    "messages_released",
    ("group",),
    "Records that were open when their partition left the worker: they come again elsewhere.",
)
LOST = _fault(
    "lost_to_retention",
    ("group", "topic"),
    "Offsets that retention removed before they were read: records never handled.",
)
DELETED = _fault(
    "lost_to_deletion",
    ("group", "topic"),
    "Offsets of a retry topic that was deleted before they were handled, as far as its end was "
    "known: records never handled again. What had been read before is handled and is not counted.",
)
METADATA_IGNORED = _fault(
    "commit_metadata_ignored",
    ("group", "topic"),
    "Commits whose metadata was not believed (damaged, foreign, newer): only their floor was used.",
)
PAUSES = _fault(
    "handler_holds",
    ("group", "handler"),
    "Times a handler asked for a pause because a dependency of its is away.",
)
SUSPECTS = _fault(
    "crash_suspects",
    (*HANDLER, "event"),
    "Records that were in flight when a worker process died and were run again; `event` is "
    "`started`, `started_alone` (with nothing beside it), or `cleared` (it ended and the process "
    "lived). Those that killed a third process are dead-lettered with the reason `crash`.",
)
STRAY_EXITS = _fault(
    "stray_exits",
    ("group",),
    "`SystemExit` and `KeyboardInterrupt` that left a task or a callback on the event loop: that "
    "task ends, and nothing else.",
)
NOT_QUARANTINED = _fault(
    "keys_not_quarantined",
    (*HANDLER, "why"),
    "Records that failed and block their key in place, because it could not be quarantined; `why` "
    "is `full` (the worker has 100,000 such keys) or `partitions` (a retry topic has fewer "
    "partitions than its source).",
)
QUARANTINES = _fault(
    "key_quarantines",
    (*HANDLER, "event"),
    "Keys that were quarantined because a record of theirs failed (`event` is `begun`) or were "
    "already when their partition came (`taken_over`), and keys that no longer are (`ended`).",
)
BREAKER_OPENED = _fault(
    "breaker_opened",
    ("group", "handler"),
    "Times the handler's circuit breaker opened: too many different records failed in a row, or an "
    "operator opened it.",
)
BREAKER_CLOSED = _fault(
    "breaker_closed",
    ("group", "handler", "why"),
    "Times the handler's circuit breaker closed; `why` is `recovered`, `operator`, `gave_in` "
    "(nothing but redeliveries to try for long), `disabled` or `left` (the worker has no partition "
    "of the handler any more).",
)
BREAKER_TRIALS = _fault(
    "breaker_trials",
    ("group", "handler", "outcome"),
    "Trials that ended while the handler's circuit breaker was not closed; `outcome` is `handled` "
    "or `failed`. One that says nothing of the handler (a pause, a value that can't be decoded) is "
    "not counted.",
)
GUARD_TRIPS = _fault(
    "guard_trips",
    ("group", "handler"),
    "Deprecated alias of `ackfloor_breaker_opened_total`, for one release.",
)
GUARD_RESETS = _fault(
    "guard_resets",
    ("group", "handler"),
    "Deprecated alias of `ackfloor_breaker_closed_total` without its `why`, for one release.",
)
GUARD_PROBES = _fault(
    "guard_probes",
    ("group", "handler", "outcome"),
    "Deprecated alias of `ackfloor_breaker_trials_total`, for one release.",
)

BUILD_INFO = _run_gauge(
    "build_info", ("group", "version", "python"), "Always 1; what the worker runs on."
)
STARTED = _run_gauge(
    "worker_start_timestamp_seconds", ("group",), "When the worker process started."
)
WORKERS_EXPECTED = _run_gauge(
    "workers_expected", ("group",), "Worker processes this run should have."
)
WORKERS_REPORTING = _run_gauge(
    "workers_reporting", ("group",), "Worker processes whose reports arrive."
)
RELOADS = _run_counter(
    "config_reloads", ("group",), "Times the settings were read again and accepted."
)
RELOAD_FAILURES = _run_counter(
    "config_reload_failures",
    ("group",),
    "Times changed settings were refused, by the run or by one of its workers; the old ones stay.",
)
LAST_RELOAD_SUCCESSFUL = _run_gauge(
    "config_last_reload_successful",
    ("group",),
    "1 where the settings that were read last count in all workers, 0 where they were refused.",
)
LAST_RELOAD = _run_gauge(
    "config_last_reload_success_timestamp_seconds",
    ("group",),
    "When settings were read again and accepted last; absent before the first time.",
)
RESTART_NEEDED = _run_gauge(
    "config_restart_needed",
    ("group",),
    "Settings that have changed in the file and wait for a restart of the run.",
)
WORKERS_ENDED = _run_counter(
    "workers_ended", ("group",), "Worker processes that ended, whatever the reason."
)

COUNTERS = (
    *(RECEIVED, RECEIVED_BYTES, ACKED, FAILED, TIMED_OUT, PARKED, RETRIED, REPLAYED, HOPPED),
    *(DEAD_LETTERED, DISCARDED, LATE_ANSWERS, SKIPPED, REWOUND, BATCH_FAILURES, WITHHELD, PUT_BACK),
    COPIES_SETTLED,
    *(COMMITS, COMMIT_FAILURES, PUBLISH_FAILURES, REBALANCES, RELEASED, LOST),
    *(DELETED, METADATA_IGNORED, PAUSES, SUSPECTS, STRAY_EXITS, NOT_QUARANTINED, QUARANTINES),
    *(BREAKER_OPENED, BREAKER_CLOSED, BREAKER_TRIALS),
    *(GUARD_TRIPS, GUARD_RESETS, GUARD_PROBES),
)
HISTOGRAMS = (
    *(DURATION, QUEUE_WAIT, ACK_LATENCY, END_TO_END),
    *(RETRY_LATENESS, TIMEOUT_LATENESS, PARK_DELAY),
)
#: Of the run as a whole: these alone carry no `worker` label.
RUN_WIDE = (
    *(WORKERS_EXPECTED, WORKERS_REPORTING, WORKERS_ENDED),
    *(g.KAFKA_LAG, g.KAFKA_OPEN, g.KAFKA_OLDEST, g.KAFKA_LOOK),
    *(RELOADS, RELOAD_FAILURES, LAST_RELOAD_SUCCESSFUL, LAST_RELOAD, RESTART_NEEDED),
)

METRICS: tuple[MetricSpec, ...] = (
    *(spec for spec in COUNTERS if spec.group == FLOW),
    *(entry.spec for entry in g.PARTITION_GAUGES),
    *(g.TOPIC_INFO, g.KAFKA_LAG, g.KAFKA_OPEN, g.KAFKA_OLDEST, g.KAFKA_LOOK),
    *HISTOGRAMS,
    *(entry.spec for entry in g.HANDLER_GAUGES),
    g.RATE_WAITED_SECONDS,
    g.POLICY_INFO,
    *(entry.spec for entry in g.WORKER_GAUGES),
    *(g.FAULT_MESSAGES, g.FAULT_SINCE, g.PAUSED, g.TURN_AGE, g.LOOP_SECONDS),
    *(spec for spec in COUNTERS if spec.group == FAULTS),
    *(BUILD_INFO, STARTED),
    *(spec for spec in RUN_WIDE if spec.group == RUN),
)
