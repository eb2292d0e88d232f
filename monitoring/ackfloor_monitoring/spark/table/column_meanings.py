"""What each column of the table means, in a sentence; units are in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ackfloor.cli.reference.headers_reference import meaning_of
from ackfloor_monitoring.spark.table.columns import HEADER_COLUMNS

_OWN = {
    "topic_id": "Of the topic, as Kafka prints it. Created anew, a topic has another one.",
    "topic": "The retry or dead-letter topic.",
    "partition": "The record's partition there.",
    "offset": "Its offset there. Topic id, partition and offset name a row.",
    "group": "The consumer group: from the header, or else from the topic's name.",
    "day": "The day of `event_time`, in UTC.",
    "stage": "`retry` or `dlq`: in which kind of topic it is. `forgotten`: only the place of an "
    "erased record is left; `read_failures` leaves such rows out.",
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
    "cluster": "The Kafka cluster, as `--cluster` of its ingest names it; null where the table "
    "holds one, without a name.",
    "foreign": "Whose headers it has beside ours: `spring`, `connect`, `kafka-dlq`.",
}
_DERIVED = {
    "kind": "`failure`: a delivery failed. `replay`: a dead letter was redriven, and its next "
    "attempt is to come; no error. `behind`: it did not fail, and waits or was given up behind "
    "another one of its key.",
    "error_class": "`error_type` without its module: `PaymentDown` for `shop.PaymentDown`. "
    "`--error` of `ackfloor dlq ls` takes either.",
    "message": "The record of the source topic that it is about, as this group sees it: its place "
    "there and its key. Null where its origin can't be read.",
}
OF_DISPOSITIONS: Final[Mapping[str, str]] = {
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


def of_failures() -> dict[str, str]:
    """By the columns of `FAILURE` and `DERIVED`."""
    return {spec.column: meaning_of(spec.header) for spec in HEADER_COLUMNS} | _OWN | _DERIVED
