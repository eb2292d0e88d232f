"""Work: the rows on progress, throughput and latency."""

from __future__ import annotations

from ackfloor_monitoring.dashboards.panels import (
    ONE,
    Row,
    Target,
    by_topic,
    graph,
    quantiles,
    rate,
    rated,
    stat,
)

SUMMARY = Row(
    "Summary",
    (
        stat(
            "Workers missing",
            "Worker processes that should report and don't.",
            "sum(ackfloor_workers_expected{$s}) - sum(ackfloor_workers_reporting{$s})",
            red=1,
        ),
        stat(
            "Oldest open record",
            "How far behind it is in time: the age of the oldest record that is read and "
            "not settled, in source topics.",
            "max(time() - "
            'ackfloor_oldest_unacked_record_timestamp_seconds{$t, topic!~".+--retry-.+"})',
            "s",
            600,
        ),
        stat(
            "Not settled",
            "Unsettled records of source topics, as Kafka sees it.",
            f'sum(max {ONE} (ackfloor_kafka_open_messages{{$t, kind="source"}}))',
        ),
        stat(
            "In retry topics",
            "Failed records that wait there.",
            f'sum(max {ONE} (ackfloor_kafka_open_messages{{$s, kind="retry"}}))',
        ),
        stat(
            "Dead letters",
            "Those not replayed, discarded or archived.",
            f'sum(max {ONE} (ackfloor_kafka_open_messages{{$s, kind="dlq"}}))',
            red=1,
        ),
        stat(
            "Faults and open breakers",
            "Outside faults that keep records open, and circuit breakers that are not closed; "
            "/readyz names them.",
            "sum(ackfloor_faults_in_force{$s})",
            red=1,
        ),
    ),
)


PROGRESS = Row(
    "Progress",
    (
        graph(
            "Oldest open record",
            "How long the record that each floor waits for has been open.",
            Target(
                f"time() - max {ONE} (ackfloor_oldest_unacked_timestamp_seconds{{$t}})",
                "{{topic}}/{{partition}}",
            ),
            unit="s",
        ),
        graph(
            "Lag",
            "From the committed position to the end of the log, and what of it is not settled.",
            by_topic("ackfloor_kafka_lag_messages", legend="lag"),
            by_topic("ackfloor_kafka_open_messages", legend="not settled"),
        ),
        graph(
            "Lag as the workers count it",
            "Unread records and open ones; a partition that is paused keeps the end it last saw.",
            by_topic("ackfloor_lag_messages"),
        ),
        graph(
            "Settled above the floor",
            "The gap set: settled records that wait for the floor.",
            Target(f"max {ONE} (ackfloor_gap_messages{{$t}})", "{{topic}}/{{partition}}"),
        ),
        graph(
            "Offsets between the floor and the highest settled",
            "Where it comes near `app.partition_span` the partition is paused.",
            Target(f"max {ONE} (ackfloor_ack_span_offsets{{$t}})", "{{topic}}/{{partition}}"),
        ),
        graph(
            "Held up by a failed one",
            "Records that wait behind a failed record of their key or partition, itself included.",
            by_topic("ackfloor_blocked_messages"),
        ),
        graph(
            "Quarantined keys",
            "Keys whose failed record is in a retry topic, and the records that wait behind one.",
            Target(
                'sum by (handler) (ackfloor_quarantined_keys{$s, handler=~"$handler"})',
                "{{handler}} keys",
            ),
            Target(
                'sum by (handler) (ackfloor_quarantined_messages{$s, handler=~"$handler"})',
                "{{handler}} records behind",
            ),
        ),
    ),
)


_HANDLED = rate("ackfloor_messages_acked_total", "handler")
_FAILED = rate("ackfloor_messages_failed_total", "handler")
THROUGHPUT = Row(
    "Throughput",
    (
        graph(
            "Received",
            "Records read, from source topics and from retry topics.",
            rated("ackfloor_messages_received_total", "handler, via"),
            unit="cps",
        ),
        graph(
            "How deliveries end",
            "Handled, failed and given up.",
            Target(_HANDLED, "{{handler}} handled"),
            Target(_FAILED, "{{handler}} failed"),
            rated("ackfloor_messages_dead_lettered_total", legend="dead-lettered"),
            rated("ackfloor_messages_discarded_total", legend="discarded"),
            unit="cps",
            stacked=True,
        ),
        graph(
            "Share of deliveries that succeed",
            "Of those that ended.",
            Target(
                f"{_HANDLED} / ({_HANDLED} + ({_FAILED} or {_HANDLED} * 0))",
                "{{handler}}",
            ),
            unit="percentunit",
        ),
    ),
)


LATENCY = Row(
    "Latency",
    (
        graph(
            "Handler",
            "Start of the handler to its answer, and its consume timeout.",
            *quantiles("ackfloor_handler_duration_seconds", "handler"),
            Target(
                "max by (handler) "
                '(ackfloor_handler_consume_timeout_seconds{$s, handler=~"$handler"})',
                "{{handler}} timeout",
            ),
            unit="s",
        ),
        graph(
            "Read to answer",
            "The wait for a slot and the handler together.",
            *quantiles("ackfloor_ack_latency_seconds", "handler"),
            unit="s",
        ),
        graph(
            "Wait for a slot",
            "Read from Kafka to the start of the handler.",
            *quantiles("ackfloor_queue_wait_seconds", "handler"),
            unit="s",
        ),
        graph(
            "End to end",
            "Timestamp of the record to its answer.",
            *quantiles("ackfloor_end_to_end_latency_seconds", "handler"),
            unit="s",
        ),
        graph(
            "Retries come late by",
            "Due time to the start of the handler.",
            *quantiles("ackfloor_retry_lateness_seconds", "handler"),
            unit="s",
        ),
        graph(
            "Timeouts act late by",
            "Deadline to the moment the delivery was ended; promised are 100 ms.",
            *quantiles("ackfloor_timeout_lateness_seconds", "handler"),
            unit="s",
        ),
    ),
)
