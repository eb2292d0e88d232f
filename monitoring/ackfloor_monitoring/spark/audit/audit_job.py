"""The audit as a job: read the table, the commits and the dispositions, hand back an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ackfloor_monitoring.spark.audit.audit import (
    FAULT_COLUMNS,
    PLACE,
    Fault,
    audited,
    fault_rows,
)
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table.columns import MESSAGE
from ackfloor_monitoring.spark.table.disposition_rows import dispositions_pattern, read_dispositions
from ackfloor_monitoring.spark.table.settled_rows import commit_frame, committed
from ackfloor_monitoring.spark.table.table_frames import message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from ackfloor.redrive import KafkaOptions


@dataclass(frozen=True, slots=True)
class Kafka:
    """The brokers' settings, for our own clients and for Spark."""

    clients: KafkaOptions
    spark: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault: what is wrong, with which message, and a record that shows it."""

    fault: str
    message: str
    group: str | None
    attempt: int
    replays: int
    record: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit found.

    Attributes:
        records: how many records of the table were looked at.
        counts: how many faults of each kind; none where all is in order.
        findings: the first few of each kind.
        left_out: what could not be judged, and why.
        ingested_s_ago: how old the table's newest ingest is, in seconds: the last that had a record
            to store, of any group; None where the table is empty.
        messages: how many messages the records are about, those that failed and whose origin is
            known; counted as in the report.
    """

    records: int
    counts: Mapping[str, int]
    findings: tuple[FaultRow, ...]
    left_out: tuple[str, ...] = ()
    ingested_s_ago: float | None = None
    messages: int = 0

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


def audit(
    spark: SparkSession,
    failures: DataFrame,
    kafka: Kafka | None,
    *,
    group: str | None = None,
    grace_s: float,
    most: int,
) -> Audit:
    """Look for what is missing, doubled or late in a table of failures.

    Args:
        failures: the table.
        kafka: where commits and dispositions are; None skips their checks.
        group: of this group only.
        grace_s: how long past its due time a record may be open, in seconds.
        most: how many findings of each kind are named.

    Raises:
        KafkaUnreachable, KafkaRefused, ReadFailed.
    """
    now_ms = time.time_ns() // 1_000_000
    grace_ms = round(grace_s * 1000)
    newest_ms = _newest_ingest_ms(failures)
    if group is not None:
        failures = failures.where(F.col("group") == group)
    known, overdue_ms, notes, left_out = [], None, None, ["what is overdue"]
    if kafka is not None:
        known = committed(failures, kafka.clients)
        overdue_ms, left_out = now_ms - grace_ms, []
        notes = _notes(spark, kafka.spark, group)
    if notes is None:
        left_out.append("whether replays have dispositions")
    rows = audited(failures, commit_frame(spark, known)).persist()
    try:
        # A group that was not ingested with the others has its replays in Kafka alone.
        there_ms = (_newest_ingest_ms(failures) or 0) - grace_ms
        found = fault_rows(rows, overdue_ms, notes, there_ms=there_ms).persist()
        counts = {row.fault: row["count"] for row in found.groupBy("fault").count().collect()}
        first = _first(found, most) if counts else ()
        ago_s = None if newest_ms is None else max(0.0, round((now_ms - newest_ms) / 1000, 1))
        failed = F.when(~F.col("behind"), message())
        ((records, messages),) = rows.agg(F.count("*"), F.count_distinct(failed)).collect()
        return Audit(records, _ordered(counts), first, tuple(left_out), ago_s, messages)
    finally:
        spark.catalog.clearCache()


def _newest_ingest_ms(failures: DataFrame) -> int | None:
    (row,) = failures.agg(F.unix_millis(F.max("ingested_at")).alias("newest_ms")).collect()
    newest_ms: int | None = row.newest_ms
    return newest_ms


def _notes(spark: SparkSession, kafka: Mapping[str, str], group: str | None) -> DataFrame | None:
    """All dispositions; None where nobody has redriven yet."""
    if not io.list_topics(spark, kafka, dispositions_pattern(group)):
        return None
    return read_dispositions(spark, kafka, group)


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {fault.value: counts[fault] for fault in Fault if fault in counts}


def _first(found: DataFrame, most: int) -> tuple[FaultRow, ...]:
    order = Window.partitionBy("fault").orderBy(*MESSAGE, "replays", "attempt", *PLACE)
    rows = (
        found.withColumn("number", F.row_number().over(order))
        .where(F.col("number") <= most)
        .orderBy("fault", "number")
        .select(*FAULT_COLUMNS)
        .collect()
    )
    order_of = list(Fault)
    return tuple(sorted(map(_fault_row, rows), key=lambda each: order_of.index(Fault(each.fault))))


def _fault_row(row: Row) -> FaultRow:
    return FaultRow(
        row.fault,
        f"{row.origin_topic}/{row.origin_partition}/{row.origin_offset}",
        row.group,
        row.attempt,
        row.replays,
        f"{row.topic}/{row.partition}/{row.offset}",
    )
