"""Trouble: the rows on failures, on what is blocked or full, and on Kafka and the run."""

from __future__ import annotations

from ackfloor_monitoring.dashboards.panels import (
    ONE,
    Row,
    Target,
    by_topic,
    graph,
    rate,
    rated,
    table,
)

FAILURES = Row(
    "Retries and dead letters",
    (
        table(
            "Errors",
            "Failed deliveries by the class of the error, the ten most frequent.",
            Target(
                "topk(10, sum by (handler, error) "
                "(increase(ackfloor_messages_failed_total{$h}[$__range])))"
            ),
        ),
        graph(
            "Dead letters by reason",
            "Records given up, and why.",
            rated("ackfloor_messages_dead_lettered_total", "handler, reason"),
            unit="cps",
        ),
        graph(
            "Retries by attempt",
            "2 is the first redelivery.",
            Target(
                rate("ackfloor_messages_retried_total", "handler, attempt"),
                "{{handler}} attempt {{attempt}}",
            ),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Replayed dead letters",
            "How their first delivery ended.",
            rated("ackfloor_messages_replayed_total", "handler, result"),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Retry topics",
            "Records that wait in each.",
            by_topic("ackfloor_kafka_open_messages", '$s, kind="retry"'),
            stacked=True,
        ),
        graph(
            "Retries overdue",
            "How long the first record that waits has been due.",
            Target(
                f"clamp_min(time() - min {ONE} "
                "(ackfloor_retry_next_due_timestamp_seconds{$s}), 0)",
                "{{topic}}/{{partition}}",
            ),
            unit="s",
        ),
        graph(
            "Dead-letter topics",
            "Not replayed, discarded or archived.",
            by_topic("ackfloor_kafka_open_messages", '$s, kind="dlq"'),
        ),
        graph(
            "Oldest dead letter",
            "Age of the oldest that was not replayed, discarded or archived.",
            Target(
                "time() - min by (topic) (ackfloor_kafka_oldest_dead_letter_timestamp_seconds{$s})",
                "{{topic}}",
            ),
            unit="s",
        ),
        graph(
            "Timeouts and late answers",
            "Deliveries ended by their timeout, and answers that came after that.",
            rated("ackfloor_messages_timed_out_total", legend="timed out"),
            rated("ackfloor_late_answers_total", legend="late answers"),
            unit="cps",
        ),
        graph(
            "Parked by reason",
            "Records written to a retry topic.",
            rated("ackfloor_messages_parked_total", "handler, reason"),
            unit="cps",
        ),
        graph(
            "Writes to retry and dead-letter topics that failed",
            "Their records stay open and are tried again.",
            rated("ackfloor_publish_failures_total", "handler, kind"),
            unit="cps",
        ),
        graph(
            "Batches that failed as a whole",
            "Calls with several records; each of their records is tried alone.",
            rated("ackfloor_batch_failures_total"),
            unit="cps",
        ),
    ),
)


_ONES = '$s, handler=~"$handler"'
BREAKER = Row(
    "Circuit breaker",
    (
        graph(
            "Not closed",
            "In how many workers; only trials start there.",
            Target(f"sum by (handler) (ackfloor_breaker_open{{{_ONES}}})", "{{handler}}"),
        ),
        graph(
            "Deliveries that may run",
            "Of all workers: one each while a breaker is open, twice as many with each success, "
            "and the concurrency when it is closed.",
            Target(f"sum by (handler) (ackfloor_breaker_allowed{{{_ONES}}})", "{{handler}}"),
            Target(
                f"sum by (handler) (ackfloor_inflight_limit{{{_ONES}}})",
                "{{handler}} concurrency",
            ),
        ),
        graph(
            "Trials by outcome",
            "Where they are handled, the dependency is back.",
            rated("ackfloor_breaker_trials_total", "handler, outcome", selection=_ONES),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Withheld records",
            "Of the worker that has the most. Nothing more is read for a handler that keeps as "
            "many as its limit, untried ones included.",
            Target(f"max by (handler) (ackfloor_withheld_messages{{{_ONES}}})", "{{handler}}"),
            Target(
                f"max by (handler) (ackfloor_withheld_messages_limit{{{_ONES}}})",
                "{{handler}} limit",
            ),
        ),
        graph(
            "Where failures go",
            "Into retry topics, at the breaker's rate while it is not closed; the others are "
            "withheld.",
            rated("ackfloor_messages_parked_total", legend="parked"),
            rated("ackfloor_messages_withheld_total", legend="withheld"),
            unit="cps",
        ),
        graph(
            "Opened and closed",
            "Changes of the breakers' states, and why they closed.",
            Target(
                "sum by (handler) "
                f"(increase(ackfloor_breaker_opened_total{{{_ONES}}}[$__rate_interval]))",
                "{{handler}} opened",
            ),
            Target(
                "sum by (handler, why) "
                f"(increase(ackfloor_breaker_closed_total{{{_ONES}}}[$__rate_interval]))",
                "{{handler}} closed: {{why}}",
            ),
        ),
    ),
)


SATURATION = Row(
    "Saturation",
    (
        graph(
            "Slots in use",
            "Handlers at work, of the concurrency of all workers.",
            Target(
                'sum by (handler) (ackfloor_inflight_messages{$s, handler=~"$handler"}) / '
                'sum by (handler) (ackfloor_inflight_limit{$s, handler=~"$handler"})',
                "{{handler}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Waiting for a slot",
            "Deliveries or lanes.",
            Target(
                'sum by (handler) (ackfloor_queued_messages{$s, handler=~"$handler"})',
                "{{handler}}",
            ),
        ),
        graph(
            "Rate of a handler",
            "What the workers that report may start in a second, and what ends.",
            Target(
                f"sum by (handler) (ackfloor_handler_rate_limit{{{_ONES}}})", "{{handler}} limit"
            ),
            Target(
                rate("ackfloor_handler_duration_seconds_bucket", "handler", f'{_ONES}, le="+Inf"')
                + f" and on (handler) ackfloor_handler_rate_limit{{{_ONES}}}",
                "{{handler}}",
            ),
            unit="cps",
        ),
        graph(
            "Waiting for the rate",
            "Records of handlers with a rate; under an order, keys or partitions.",
            Target(
                f"sum by (handler) (ackfloor_handler_rate_waiting_messages{{{_ONES}}})",
                "{{handler}}",
            ),
        ),
        graph(
            "The loops' time at work",
            "Where it comes near 100 % a worker can do no more.",
            Target(
                "sum by (instance, worker) (rate(ackfloor_loop_seconds_total"
                '{$s, state="work"}[$__rate_interval]))',
                "{{instance}} worker {{worker}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Paused partitions",
            "By the reason.",
            Target("sum by (reason) (ackfloor_partitions_paused{$s})", "{{reason}}"),
            stacked=True,
        ),
        graph(
            "Bytes of open records",
            "And how many each worker may have.",
            Target(
                "max by (instance, worker) (ackfloor_buffer_bytes{$s})",
                "{{instance}} worker {{worker}}",
            ),
            Target("max(ackfloor_buffer_limit_bytes{$s})", "limit"),
            unit="bytes",
        ),
        graph(
            "Handlers that run on after their timeout",
            "Each holds a thread or a task.",
            Target(
                'sum by (handler) (ackfloor_abandoned_handlers{$s, handler=~"$handler"})',
                "{{handler}}",
            ),
        ),
    ),
)


RUN = Row(
    "Kafka and the run",
    (
        graph(
            "Commits",
            "Positions committed, and those refused, by reason.",
            rated("ackfloor_commits_total", "group", selection="$s"),
            rated("ackfloor_commit_failures_total", "group, reason", selection="$s"),
            unit="cps",
        ),
        graph(
            "Rebalances",
            "Changes of the workers' assignments.",
            Target(
                "sum by (group, event) (increase(ackfloor_rebalances_total{$s}[$__rate_interval]))",
                "{{group}} {{event}}",
            ),
        ),
        graph(
            "Partitions of each worker",
            "Retry topics included.",
            Target(
                "sum by (instance, worker) (ackfloor_partitions_assigned{$s})",
                "{{instance}} worker {{worker}}",
            ),
            stacked=True,
        ),
        graph(
            "Worker processes that ended",
            "Whatever the reason; the log has it.",
            Target(
                "sum by (instance) (increase(ackfloor_workers_ended_total{$s}[$__rate_interval]))",
                "{{instance}}",
            ),
        ),
        graph(
            "Records released, skipped and rewound",
            "Open when their partition left; handled or parked before, when read again; dropped "
            "because too much waited behind failed ones, and read again.",
            rated("ackfloor_messages_released_total", "group", "released", "$s"),
            rated("ackfloor_messages_skipped_total", "group", "skipped", "$s"),
            rated("ackfloor_messages_rewound_total", "group", "rewound", "$s"),
            unit="cps",
        ),
        table(
            "Versions",
            "What runs.",
            Target("count by (group, version, python) (ackfloor_build_info{$s})"),
        ),
    ),
)


WATCH = Row(
    "Spark watch",
    (
        graph(
            "Offsets not stored yet",
            "Of retry and dead-letter topics.",
            Target("sum by (topic) (ackfloor_spark_lag_offsets)", "{{topic}}"),
        ),
        graph(
            "Failures stored",
            "By where they lie.",
            Target(
                "sum by (handler, stage) "
                '(rate(ackfloor_spark_failures_total{group=~"$group"}[$__rate_interval]))',
                "{{handler}} {{stage}}",
            ),
            unit="cps",
        ),
        graph(
            "New and surging",
            "Fingerprints not seen before, and those far more frequent than usual.",
            Target(
                "sum by (handler) "
                '(increase(ackfloor_spark_new_fingerprints_total{group=~"$group"}[$__rate_interval]))',
                "{{handler}} new",
            ),
            Target(
                'sum by (handler) (ackfloor_spark_surging_fingerprints{group=~"$group"})',
                "{{handler}} surging",
            ),
        ),
    ),
    folded=True,
)
