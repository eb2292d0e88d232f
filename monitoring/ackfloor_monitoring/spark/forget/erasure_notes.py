"""Notes of erasures, beside the table: when, how much, by whom; never what was asked for.

They lie in a folder of the table that Delta leaves alone. A property of the table would end an
append that is under way, and the log would have to be read as far back as an ingest of every ten
seconds goes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ackfloor_monitoring.spark.table.store import file_system

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = "_forgotten"


@dataclass(frozen=True, slots=True)
class ErasureNote:
    """One erasure.

    Attributes:
        at: when it began, ISO 8601 in UTC.
        by: who asked for it, as `user@host`.
        rows: the rows that have left the newest version.
        messages: the messages that these were about.
        done: whether it came to its end; else rows may be left, in old files too.
    """

    at: str
    by: str
    rows: int
    messages: int
    done: bool
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


def write_note(spark: SparkSession, table: str, note: ErasureNote) -> None:
    """Write it, in place of an earlier one of its name."""
    files, path = file_system(spark, f"{table}/{_FOLDER}/{note.name}.json")
    stream = files.create(path, True)
    try:
        stream.write(bytearray(json.dumps(asdict(note)).encode()))
    finally:
        stream.close()


def notes_since(spark: SparkSession, table: str, since: datetime) -> list[ErasureNote]:
    """Those that began since then, the first one first."""
    found = (n for n in all_notes(spark, table) if datetime.fromisoformat(n.at) >= since)
    return sorted(found, key=lambda note: note.at)


def all_notes(spark: SparkSession, table: str) -> frozenset[ErasureNote]:
    """All of them."""
    return frozenset(_notes(spark, table))


def _notes(spark: SparkSession, table: str) -> Iterator[ErasureNote]:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    files, folder = file_system(spark, f"{table}/{_FOLDER}")
    if not files.exists(folder):
        return
    for status in files.listStatus(folder):
        stream = files.open(status.getPath())
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        if text:  # a kill can leave an empty one
            yield ErasureNote(**json.loads(text))
