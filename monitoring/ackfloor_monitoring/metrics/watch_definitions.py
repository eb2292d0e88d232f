"""The metrics of `ackfloor spark`: of a watch, its pipeline and the failures it stores, and of the
file that a report leaves.

They are not beside those commands because `make docs` reads them where Spark is not installed.
"""

from __future__ import annotations

from functools import partial

from ackfloor_monitoring.metrics.metric_spec import MetricSpec, counter, gauge, histogram

PIPELINE, FAILURES = "The pipeline", "What fails"
_pipeline_counter = partial(counter, PIPELINE)
_pipeline_gauge = partial(gauge, PIPELINE)
_failure_counter = partial(counter, FAILURES)
_failure_gauge = partial(gauge, FAILURES)

BATCH_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

RECORDS = _pipeline_counter(
    "spark_records", (), "Records of retry and dead-letter topics whose batch was stored."
)
BATCHES = _pipeline_counter("spark_batches", (), "Batches stored, without those of no record.")
BATCH_DURATION = histogram(
    PIPELINE,
    "spark_batch_duration_seconds",
    (),
    "From the look for new records to the commit of their batch.",
    BATCH_SECONDS,
)
INPUT_RATE = _pipeline_gauge(
    "spark_input_records_per_second",
    (),
    "Records of the last batch by the time since the batch before; 0 where nothing came.",
)
LAG = _pipeline_gauge(
    "spark_lag_offsets",
    ("topic",),
    "Offsets from what is stored to the end of the topic, as of the last progress; the first 1,000 "
    "topics have their name and the rest are added up as `other`.",
)
LAST_BATCH = _pipeline_gauge(
    "spark_last_batch_timestamp_seconds",
    (),
    "When a batch was stored last; absent before the first.",
)
LAST_PROGRESS = _pipeline_gauge(
    "spark_last_progress_timestamp_seconds",
    (),
    "When the stream last stored a batch or found that there is nothing new; until then, when the "
    "watch started.",
)
ERRORS = _pipeline_counter(
    "spark_errors",
    ("error",),
    "Streams that ended in a failed batch and were begun anew, and looks at the table that failed "
    "and are done again, by the kind of error; the log has the sentence.",
)
LAST_ERROR = _pipeline_gauge(
    "spark_last_error_timestamp_seconds",
    ("error",),
    "When that error came last; absent before the first.",
)
GONE = _pipeline_counter(
    "spark_offsets_gone", (), "Offsets that retention took from Kafka before they were stored."
)

_CAPPED = "The first 200 pairs of group and handler have their names and the rest are `other`"
STORED = _failure_counter(
    "spark_failures",
    ("group", "handler", "stage", "reason"),
    "Rows stored since the watch started; `stage` is `retry` or `dlq`, `reason` that of the header "
    f"`ackfloor.reason`. {_CAPPED}, here and below.",
)
NEW = _failure_counter(
    "spark_new_fingerprints",
    ("group", "handler"),
    "Fingerprints of which no failure was in the look-back before.",
)
LAST_NEW = _failure_gauge(
    "spark_last_new_fingerprint_timestamp_seconds",
    ("group", "handler"),
    "When a new fingerprint was found last; absent before the first.",
)
SURGES = _failure_counter(
    "spark_surges",
    ("group", "handler"),
    "Times a fingerprint began to fail far more often than in the look-back.",
)
SURGING = _failure_gauge(
    "spark_surging_fingerprints",
    ("group", "handler"),
    "Fingerprints that do so now: until two windows have passed without it.",
)

WATCH_METRICS: tuple[MetricSpec, ...] = (
    *(RECORDS, BATCHES, BATCH_DURATION, INPUT_RATE, LAG, LAST_BATCH, LAST_PROGRESS),
    *(ERRORS, LAST_ERROR, GONE),
    *(STORED, NEW, LAST_NEW, SURGES, SURGING),
)

_report_gauge = partial(gauge, "The report")
REPORT_MADE = _report_gauge(
    "spark_report_timestamp_seconds",
    (),
    "When the report was made; a scheduled run that failed leaves the time of the one before.",
)
REPORT_LAST_FAILURE = _report_gauge(
    "spark_report_last_failure_timestamp_seconds", (), "When the last failure of the table was."
)
REPORT_RECORDS = _report_gauge("spark_report_records", (), "Rows of the table.")
REPORT_MESSAGES = _report_gauge(
    "spark_report_messages",
    ("outcome",),
    "Messages of the table that failed: `recovered` (a bound from above), `dead`, `waiting`, and "
    "`unknown`, where the group's commits are not known.",
)
REPORT_FAILURES = _report_gauge(
    "spark_report_failures",
    ("group", "handler"),
    "Failed deliveries in the table. The 200 pairs of group and handler with the most have their "
    "names and the rest are `other`, here and below.",
)
REPORT_NEW_CAUSES = _report_gauge(
    "spark_report_new_causes",
    ("group", "handler"),
    "Causes that the report calls new: first seen since `--since`.",
)

REPORT_METRICS: tuple[MetricSpec, ...] = (
    *(REPORT_MADE, REPORT_LAST_FAILURE, REPORT_RECORDS, REPORT_MESSAGES),
    *(REPORT_FAILURES, REPORT_NEW_CAUSES),
)
