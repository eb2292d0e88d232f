"""The table of metrics: those that events feed are here, `gauges` has those of the snapshot.

`METRICS` is all of them, in the order of the exposition and of docs/reference/metrics.md.
"""

from __future__ import annotations

from ackfloor_monitoring.gauges import (
    FAULT_MESSAGES,
    FAULT_SINCE,
    HANDLER_GAUGES,
    KAFKA_LAG,
    KAFKA_LOOK,
    KAFKA_OLDEST,
    KAFKA_OPEN,
    LOOP_SECONDS,
    PARTITION_GAUGES,
    PAUSED,
    POLICY_INFO,
    TOPIC_INFO,
    TURN_AGE,
    WORKER_GAUGES,
)
from ackfloor_monitoring.spec import HANDLER, MetricSpec, counter, gauge, histogram

FLOW, LATENCY, FAULTS, RUN = "Flow", "Latency", "Faults", "Run"

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
#: How far from its promise something happened: 100 ms for timeouts, 250 ms for retries.
LATENESS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 300.0)

RECEIVED = counter(
    FLOW,
    "messages_received",
    (*HANDLER, "via"),
    "Records read and registered; `via` is `source` or `retry` (read from a retry tier).",
)
RECEIVED_BYTES = counter(
    FLOW, "received_bytes", (*HANDLER, "via"), "Bytes of the values of the records received."
)
ACKED = counter(FLOW, "messages_acked", HANDLER, "Deliveries that ended as handled.")
FAILED = counter(
    FLOW,
    "messages_failed",
    (*HANDLER, "error"),
    "Deliveries that ended without being handled, timeouts (`ConsumeTimeout`) included; `error` "
    "is the exception's class, of which the first 50 keep their name and the rest are `other`.",
)
TIMED_OUT = counter(
    FLOW, "messages_timed_out", HANDLER, "Deliveries that outlived their consume timeout."
)
PARKED = counter(
    FLOW,
    "messages_parked",
    (*HANDLER, "reason"),
    "Records that became durable in a retry tier, by the header `ackfloor.reason`.",
)
RETRIED = counter(
    FLOW,
    "messages_retried",
    (*HANDLER, "attempt"),
    "Redeliveries that ended, by attempt (2 is the first redelivery; beyond 10: `>10`). The first "
    "delivery of a replayed dead letter is none.",
)
REPLAYED = counter(
    FLOW,
    "messages_replayed",
    (*HANDLER, "result"),
    "Replayed dead letters that were read from a retry tier and whose first delivery ended; "
    "`result` is `handled` or `failed`. What was replayed to its source topic counts as received "
    "there.",
)
HOPPED = counter(
    FLOW, "messages_hopped", HANDLER, "Records with a long wait that moved on to their next tier."
)
DEAD_LETTERED = counter(
    FLOW,
    "messages_dead_lettered",
    (*HANDLER, "reason", "error"),
    "Records that became durable in the dead-letter topic; `error` as for failed messages.",
)
DISCARDED = counter(
    FLOW, "messages_discarded", HANDLER, "Records dropped by an explicit word of the user."
)
LATE_ANSWERS = counter(
    FLOW,
    "late_answers",
    HANDLER,
    "Answers that came after their delivery had ended, and changed nothing.",
)

BATCH_FAILURES = counter(
    FLOW,
    "batch_failures",
    HANDLER,
    "Calls with several records that failed as a whole: each record without an answer is tried "
    "alone, at once, and spends no attempt. A call that timed out is none of these.",
)
WITHHELD = counter(
    FLOW,
    "messages_withheld",
    HANDLER,
    "Deliveries that failed while the handler's circuit breaker was not closed, or was about to "
    "open, and whose records were written nowhere: the same attempt comes again.",
)
PUT_BACK = counter(
    FLOW,
    "messages_put_back",
    HANDLER,
    "Deprecated alias of `ackfloor_messages_withheld_total`, for one release.",
)

DURATION = histogram(
    LATENCY,
    "handler_duration_seconds",
    (*HANDLER, "outcome"),
    "Start of the handler to its answer; `outcome` is `acked`, `failed` or `timed_out`. Every "
    "consume timeout in force is a bucket edge.",
    HANDLER_SECONDS,
)
QUEUE_WAIT = histogram(
    LATENCY,
    "queue_wait_seconds",
    HANDLER,
    "Read from Kafka to start of the handler, of what was handled; for a redelivery this "
    "includes the wait in its tier that was left when it was read.",
    WAIT_SECONDS,
)
ACK_LATENCY = histogram(
    LATENCY,
    "ack_latency_seconds",
    HANDLER,
    "Read from Kafka to the answer, of what was handled: the wait and the handler's time together.",
    WAIT_SECONDS,
)
END_TO_END = histogram(
    LATENCY,
    "end_to_end_latency_seconds",
    HANDLER,
    "Timestamp of the record to its answer, of what was handled; a record read from a retry "
    "tier has the time of its parking as timestamp.",
    END_TO_END_SECONDS,
)
RETRY_LATENESS = histogram(
    LATENCY,
    "retry_lateness_seconds",
    HANDLER,
    "Due time of a redelivery to the start of its handler.",
    LATENESS_SECONDS,
)
TIMEOUT_LATENESS = histogram(
    LATENCY,
    "timeout_lateness_seconds",
    HANDLER,
    "Deadline of a delivery to the moment it was ended.",
    LATENESS_SECONDS,
)
PARK_DELAY = histogram(
    LATENCY,
    "park_delay_seconds",
    HANDLER,
    "Failure of a delivery to the broker's confirmation that its record is in a retry tier.",
    LATENESS_SECONDS,
)

SKIPPED = counter(
    FLOW,
    "messages_skipped",
    HANDLER,
    "Records read again after a crash or rebalance that the last commit already held as settled.",
)
COMMITS = counter(FAULTS, "commits", ("group",), "Positions whose commit was confirmed.")
COMMIT_FAILURES = counter(
    FAULTS,
    "commit_failures",
    ("group", "topic", "reason"),
    "Commits of one partition that were refused or lost; each is sent again. `reason` is the name "
    "that Kafka's client has for the error, or `unconfirmed` where no answer came.",
)
PUBLISH_FAILURES = counter(
    FAULTS,
    "publish_failures",
    (*HANDLER, "kind"),
    "Writes to a retry tier (`kind` is `retry`) or the dead-letter topic (`dlq`) that failed; "
    "the record stays open and is tried again.",
)
REBALANCES = counter(
    FAULTS,
    "rebalances",
    ("group", "event"),
    "Changes of this worker's assignment; `event` is `assigned`, `revoked` or `lost`.",
)
RELEASED = counter(
    FAULTS,
    "messages_released",
    ("group",),
    "Records that were open when their partition left the worker: they come again elsewhere.",
)
LOST = counter(
    FAULTS,
    "lost_to_retention",
    ("group", "topic"),
    "Offsets that retention removed before they were read: records never handled.",
)
DELETED = counter(
    FAULTS,
    "lost_to_deletion",
    ("group", "topic"),
    "Offsets of a retry topic that was deleted before they were handled, as far as its end was "
    "known: records never handled again. What had been read before is handled and is not counted.",
)
METADATA_IGNORED = counter(
    FAULTS,
    "commit_metadata_ignored",
    ("group", "topic"),
    "Commits whose metadata was not believed (damaged, foreign, newer): only their floor was used.",
)
HOLDS = counter(
    FAULTS,
    "handler_holds",
    ("group", "handler"),
    "Times a handler asked for a pause because a dependency of its is away.",
)
SUSPECTS = counter(
    FAULTS,
    "crash_suspects",
    (*HANDLER, "event"),
    "Records that were in flight when a worker process died and were run again; `event` is "
    "`started`, `started_alone` (with nothing beside it), or `cleared` (it ended and the process "
    "lived). Those that killed a third process are dead-lettered with the reason `crash`.",
)
STRAY_EXITS = counter(
    FAULTS,
    "stray_exits",
    ("group",),
    "`SystemExit` and `KeyboardInterrupt` that left a task or a callback on the event loop: that "
    "task ends, and nothing else.",
)
BREAKER_OPENED = counter(
    FAULTS,
    "breaker_opened",
    ("group", "handler"),
    "Times the handler's circuit breaker opened: too many different records failed in a row, or an "
    "operator opened it.",
)
BREAKER_CLOSED = counter(
    FAULTS,
    "breaker_closed",
    ("group", "handler", "why"),
    "Times the handler's circuit breaker closed; `why` is `recovered`, `operator`, `gave_in` "
    "(nothing but redeliveries to try for long), `disabled` or `left` (the worker has no partition "
    "of the handler any more).",
)
BREAKER_TRIALS = counter(
    FAULTS,
    "breaker_trials",
    ("group", "handler", "outcome"),
    "Trials that ended while the handler's circuit breaker was not closed; `outcome` is `handled` "
    "or `failed`. One that says nothing of the handler (a pause, a value that can't be decoded) is "
    "not counted.",
)
GUARD_TRIPS = counter(
    FAULTS,
    "guard_trips",
    ("group", "handler"),
    "Deprecated alias of `ackfloor_breaker_opened_total`, for one release.",
)
GUARD_RESETS = counter(
    FAULTS,
    "guard_resets",
    ("group", "handler"),
    "Deprecated alias of `ackfloor_breaker_closed_total` without its `why`, for one release.",
)
GUARD_PROBES = counter(
    FAULTS,
    "guard_probes",
    ("group", "handler", "outcome"),
    "Deprecated alias of `ackfloor_breaker_trials_total`, for one release.",
)

BUILD_INFO = gauge(
    RUN, "build_info", ("group", "version", "python"), "Always 1; what the worker runs on."
)
STARTED = gauge(
    RUN, "worker_start_timestamp_seconds", ("group",), "When the worker process started."
)
WORKERS_EXPECTED = gauge(
    RUN, "workers_expected", ("group",), "Worker processes this run should have."
)
WORKERS_REPORTING = gauge(
    RUN, "workers_reporting", ("group",), "Worker processes whose reports arrive."
)
RELOADS = counter(
    RUN, "config_reloads", ("group",), "Times the settings were read again and accepted."
)
RELOAD_FAILURES = counter(
    RUN,
    "config_reload_failures",
    ("group",),
    "Times changed settings were refused, by the run or by one of its workers; the old ones stay.",
)
LAST_RELOAD_SUCCESSFUL = gauge(
    RUN,
    "config_last_reload_successful",
    ("group",),
    "1 where the settings that were read last count in all workers, 0 where they were refused.",
)
LAST_RELOAD = gauge(
    RUN,
    "config_last_reload_success_timestamp_seconds",
    ("group",),
    "When settings were read again and accepted last; absent before the first time.",
)
RESTART_NEEDED = gauge(
    RUN,
    "config_restart_needed",
    ("group",),
    "Settings that have changed in the file and wait for a restart of the run.",
)
WORKERS_ENDED = counter(
    RUN, "workers_ended", ("group",), "Worker processes that ended, whatever the reason."
)

COUNTERS = (
    *(RECEIVED, RECEIVED_BYTES, ACKED, FAILED, TIMED_OUT, PARKED, RETRIED, REPLAYED, HOPPED),
    *(DEAD_LETTERED, DISCARDED, LATE_ANSWERS, SKIPPED, BATCH_FAILURES, WITHHELD, PUT_BACK),
    *(COMMITS, COMMIT_FAILURES, PUBLISH_FAILURES, REBALANCES, RELEASED, LOST),
    *(DELETED, METADATA_IGNORED, HOLDS, SUSPECTS, STRAY_EXITS),
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
    *(KAFKA_LAG, KAFKA_OPEN, KAFKA_OLDEST, KAFKA_LOOK),
    *(RELOADS, RELOAD_FAILURES, LAST_RELOAD_SUCCESSFUL, LAST_RELOAD, RESTART_NEEDED),
)

METRICS: tuple[MetricSpec, ...] = (
    *(spec for spec in COUNTERS if spec.group == FLOW),
    *(entry.spec for entry in PARTITION_GAUGES),
    *(TOPIC_INFO, KAFKA_LAG, KAFKA_OPEN, KAFKA_OLDEST, KAFKA_LOOK),
    *HISTOGRAMS,
    *(entry.spec for entry in HANDLER_GAUGES),
    POLICY_INFO,
    *(entry.spec for entry in WORKER_GAUGES),
    *(FAULT_MESSAGES, FAULT_SINCE, PAUSED, TURN_AGE, LOOP_SECONDS),
    *(spec for spec in COUNTERS if spec.group == FAULTS),
    *(BUILD_INFO, STARTED),
    *(spec for spec in RUN_WIDE if spec.group == RUN),
)
