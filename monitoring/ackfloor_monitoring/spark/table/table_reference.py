"""Reference: docs/reference/table.md, written from the schema.

    python -m ackfloor_monitoring.spark.table.table_reference > docs/reference/table.md

A column without a meaning here raises KeyError, and a test compares the file with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pyspark.sql.types import StructField

from ackfloor.cli.reference.headers_reference import meaning_of
from ackfloor_monitoring.spark.table.columns import (
    DERIVED,
    FAILURE,
    HEADER_COLUMNS,
    PARTITIONED_BY,
    TABLE_VERSION,
)
from ackfloor_monitoring.spark.table.disposition_rows import DISPOSITION

_FOLDERS = " and ".join(f"`{name}`" for name in PARTITIONED_BY)
_HEAD = f"""\
# The table of failures

<!-- Written by `python -m ackfloor_monitoring.spark.table.table_reference`; don't edit. -->

[`ackfloor spark ingest`](../spark.md) stores one row for each record of a retry or dead-letter
topic, in a Delta table of version {TABLE_VERSION}, in folders by {_FOLDERS}. Types are Spark's.
Times are in UTC, to the millisecond. A column is null where its header is not there or can't be
read; `unreadable` names the latter.
"""
_DERIVED = """\
## What `read_failures` adds

These follow from the stored columns, so tables of earlier releases have them as well. `--where` of
`ackfloor spark replay` knows them too. [Spark](../spark.md#the-table) says how to count with them.
"""
_DISPOSITIONS = """\
## Dispositions

`read_dispositions` gives a row for each dead letter that was redriven, discarded or archived, from
the compacted topics of the dispositions. The first four columns are those of the table.
"""

_MEANING = {
    "topic_id": "Of the topic, as Kafka prints it. Created anew, a topic has another one.",
    "topic": "The retry or dead-letter topic.",
    "partition": "The record's partition there.",
    "offset": "Its offset there. Topic id, partition and offset name a row.",
    "group": "The consumer group: from the header, or else from the topic's name.",
    "day": "The day of `event_time`, in UTC.",
    "stage": "`retry` or `dlq`: in which kind of topic it is.",
    "tier": "The delay in the retry topic's name, such as `5s`; null in a dead-letter topic.",
    "event_time": "When the handler failed: `failed_at`, or without that header `kafka_time`. A "
    "worker's clock may be wrong.",
    "kafka_time": "The record's own timestamp: when it was written.",
    "ingested_at": "When its batch was stored.",
    "key": "The record's key, as the redaction rules leave it.",
    "payload": "The record's value, as the redaction rules leave it; null where they remove it.",
    "payload_bytes": "The size of the value in Kafka, in bytes; null for a tombstone.",
    "headers": "The record's own headers, as the redaction rules leave them.",
    "unreadable": "Headers of ours that could not be read, by name.",
    "foreign": "Whose headers it has beside ours: `spring`, `connect`, `kafka-dlq`.",
}
_MEANING_DERIVED = {
    "kind": "`failure`: a delivery failed. `replay`: a dead letter was redriven, and its next "
    "attempt is to come; no error. `behind`: it did not fail, and waits or was given up behind "
    "another one of its key.",
    "error_class": "`error_type` without its module: `PaymentDown` for `shop.PaymentDown`. "
    "`--error` of `ackfloor dlq ls` takes either.",
    "message": "The record of the source topic that it is about, as this group sees it: its place "
    "there and its key. Null where its origin can't be read.",
}
_MEANING_DISPOSITION = {
    "topic": "The dead-letter topic.",
    "topic_id": "Its id when this was done; empty where it was not known.",
    "partition": "The dead letter's partition.",
    "offset": "Its offset.",
    "disposition": "`replayed`, `discarded` or `archived`.",
    "target": "The topic it was replayed to, or where it was archived.",
    "at_ms": "When, in milliseconds since the epoch.",
    "by": "Who asked for it, as `user@host`.",
    "job": "The job that did it, as `ackfloor dlq jobs` names it.",
}


def render() -> str:
    """The whole page."""
    meanings = {spec.column: meaning_of(spec.header) for spec in HEADER_COLUMNS} | _MEANING
    return "\n".join(
        [
            _HEAD,
            _table(FAILURE, meanings),
            _DERIVED,
            _table(DERIVED, _MEANING_DERIVED),
            _DISPOSITIONS,
            _table(DISPOSITION, _MEANING_DISPOSITION),
        ]
    )


def _table(fields: Iterable[StructField], meanings: dict[str, str]) -> str:
    rows = [
        f"| `{field.name}` | `{field.dataType.simpleString()}` | {meanings[field.name]} |"
        for field in fields
    ]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
