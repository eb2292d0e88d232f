"""Records of the month as rows of the table `failures`, and as Parquet files, batch by batch.

For work on the table without a broker and without an ingest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor_monitoring.spark.table.columns import FAILURE, HEADER_COLUMNS
from benchmarks.failures.month import Parked, topic_id

_BATCH = 20_000
_DAY_MS = 86_400_000
_TIMES = {spec.column for spec in HEADER_COLUMNS if spec.kind == "time"}
#: Column -> field of the envelope.
_FIELDS = {
    spec.column: f"{spec.column}_ms" if spec.kind == "time" else spec.column
    for spec in HEADER_COLUMNS
}
SCHEMA: pa.Schema = to_arrow_schema(FAILURE, timezone="UTC")


@cache
def _named(topic: str) -> tuple[str, str, str | None]:
    """A topic's id, stage and the delay in its name."""
    parsed = parse_topic(topic)
    assert parsed is not None, topic
    tier = topic.rpartition("--retry-")[2] if parsed.kind == "retry" else None
    return topic_id(topic), parsed.kind, tier


def row(parked: Parked) -> dict[str, Any]:
    """One row; times in microseconds, as Arrow takes them."""
    identity, stage, tier = _named(parked.topic)
    envelope = parked.envelope
    event_ms = envelope.failed_at_ms or parked.timestamp_ms
    told: dict[str, Any] = {name: getattr(envelope, field) for name, field in _FIELDS.items()}
    for name in _TIMES:
        told[name] = None if told[name] is None else told[name] * 1000
    if not envelope.replays:
        told["replays"] = None  # the header is left out
    return {
        **told,
        "reason": envelope.reason and envelope.reason.value,
        "topic_id": identity,
        "topic": parked.topic,
        "partition": parked.partition,
        "offset": parked.offset,
        "day": event_ms // _DAY_MS,
        "stage": stage,
        "tier": tier,
        "event_time": event_ms * 1000,
        "kafka_time": parked.timestamp_ms * 1000,
        "ingested_at": (parked.timestamp_ms + 20_000) * 1000,
        "key": parked.key,
        "payload": parked.value,
        "payload_bytes": len(parked.value),
        "headers": [{"key": name, "value": value} for name, value in parked.own_headers],
        "unreadable": [],
        "foreign": [],
        "cluster": None,
    }


def write_parquet(records: Iterable[Parked], folder: Path) -> int:
    """Write the rows into a folder of Parquet files; returns how many there are."""
    folder.mkdir(parents=True)
    coming = iter(records)
    count = 0
    for number in range(1_000_000):
        rows = [row(parked) for parked in islice(coming, _BATCH)]
        if not rows:
            break
        pq.write_table(_table(rows), folder / f"part-{number:05d}.parquet")
        count += len(rows)
    return count


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for field in SCHEMA:
        values = [row[field.name] for row in rows]
        if pa.types.is_date(field.type):
            columns.append(pa.array(values, pa.int32()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)
