"""How the console's index grows: `python -m benchmarks.console_index` writes a result.

Records in memory, without a broker: what a dead letter, a record of a retry topic and a disposition
take of the disk, and of the core that writes them. A record of a retry topic is looked up by its
source place, with all others of that record, as a page does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from ackfloor.core.records.envelope import Envelope, Reason, write_headers
from ackfloor.core.records.redaction import Redaction
from ackfloor.dead_letters.rules.dispositions import (
    Disposed,
    Disposition,
    DispositionNote,
    disposition_key,
    read_disposition,
)
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor_monitoring.console.index.index_file import IndexFile
from ackfloor_monitoring.console.index.index_rows import SourcePlace, index_row, retry_row
from ackfloor_monitoring.console.index.index_search import IndexSearch
from ackfloor_monitoring.console.index.index_writer import Change, IndexWriter
from ackfloor_monitoring.console.index.record_history import RecordHistory
from benchmarks import machine
from benchmarks.results import FOLDER

BATCH: Final = 500
PARTITIONS, HOPS = 12, 5
DLQ, RETRY = "orders--billing--dlq", "orders--billing--retry-30s"
LOOKS: Final = 200
DAY_MS: Final = 86_400_000
BEGAN_MS: Final = 1_790_000_000_000


def record(topic: str, number: int, count: int) -> DeadLetter:
    """One of many that fail within a week, each in `HOPS` retry topics or once for ever."""
    at_ms = BEGAN_MS + 7 * DAY_MS * number // count
    dead = topic == DLQ
    origin = number if dead else number // HOPS
    failed = Envelope(
        origin_topic="orders", origin_partition=origin % PARTITIONS, origin_offset=origin,
        origin_timestamp_ms=at_ms - 60_000, group="billing", handler="bill",
        attempt=7 if dead else 1 + number % HOPS, failures=7,
        reason=Reason.EXHAUSTED if dead else Reason.ERROR, error_type=f"shop.Error{number % 20}",
        error_message=f"no stock of {number % 1000}", error_stack="Traceback\n" * 6,
        error_fingerprint=f"cause-{number % 20}", first_failed_at_ms=at_ms - 30_000,
        failed_at_ms=at_ms, not_before_ms=None if dead else at_ms + 30_000,
    )  # fmt: skip
    headers = write_headers(failed, [("tenant", b"t%d" % (number % 50))])
    key = b"customer-%d" % (number % 100_000)
    place = topic, number % PARTITIONS, number // PARTITIONS
    return DeadLetter(*place, key, b'{"order": %d}' % number, headers, at_ms)


def batches(topic: str, count: int) -> Iterator[tuple[list[DeadLetter], dict[int, int]]]:
    """Records in the order of time, and where to read on behind them."""
    for first in range(0, count, BATCH):
        some = [record(topic, n, count) for n in range(first, min(first + BATCH, count))]
        yield some, {each.partition: each.offset + 1 for each in some}


def dead_letters(writer: IndexWriter, number: int, count: int) -> float:
    """Add dead letters; returns the seconds that it took, without those of making them."""
    rules, took_s = Redaction(), 0.0
    for some, positions in batches(DLQ, count):
        began_s = time.process_time()
        rows = [index_row(each, rules) for each in some]
        writer.add(number, rows, positions, Disposed())
        took_s += time.process_time() - began_s
    return took_s


def retries(writer: IndexWriter, number: int, count: int) -> float:
    """Add records of a retry topic, likewise."""
    took_s = 0.0
    for some, positions in batches(RETRY, count):
        began_s = time.process_time()
        writer.add_retry(number, [retry_row(each) for each in some], positions)
        took_s += time.process_time() - began_s
    return took_s


def dispositions(writer: IndexWriter, number: int, count: int) -> float:
    """Note that all dead letters were replayed, by jobs of a thousand, before they are read."""
    disposed, took_s = Disposed(), 0.0
    for first in range(0, count, BATCH):
        notes = [_disposition(n) for n in range(first, min(first + BATCH, count))]
        began_s = time.process_time()
        changes = list[Change]()
        for partition, offset, value in notes:
            disposed.note(disposition_key(partition, offset), value)
            changes.append(Change(partition, offset, read_disposition(value)))
        writer.dispose(number, [each[:2] for each in changes], disposed)
        writer.note_changes(number, changes, disposed)
        took_s += time.process_time() - began_s
    return took_s


def _disposition(n: int) -> tuple[int, int, bytes]:
    job = f"20261121-173000-{n // 1_000:04}"
    note = DispositionNote(Disposition.REPLAYED, BEGAN_MS + n, "ann@ops-1", job, RETRY)
    return n % PARTITIONS, n // PARTITIONS, note.to_bytes()


def grown(
    add: Callable[[IndexWriter, int, int], float], topic: str, count: int, folder: Path
) -> tuple[float, float, float]:
    """Megabytes and seconds of a million, and the p95 of a look at one record, in milliseconds."""
    file = IndexFile(folder / f"{add.__name__}.sqlite", Redaction())
    kind = "dlq" if topic == DLQ else "retry"
    with closing(file.to_write("cluster")) as connection:
        writer = IndexWriter(connection, 2 * count)
        number = writer.add_topic(topic, "id", "billing", kind)
        writer.keep(number, dict.fromkeys(range(PARTITIONS), (0, count)))
        took_s = add(writer, number, count)
        connection.execute("pragma wal_checkpoint(truncate)")
    size = file.path.stat().st_size
    with closing(file.to_read()) as connection:
        looks_ms = list[float]()
        for n in range(LOOKS):
            origin = n * (count // HOPS // LOOKS)
            began_s = time.perf_counter()
            RecordHistory(IndexSearch(connection)).of(
                SourcePlace("orders", origin % PARTITIONS, origin)
            )
            looks_ms.append(1_000 * (time.perf_counter() - began_s))
    return size / count, 1e6 * took_s / count, quantiles(looks_ms, n=20)[18]


def report(count: int) -> str:
    """The result as a text."""
    rows = list[str]()
    with TemporaryDirectory() as folder:
        for name, add, topic in (
            ("dead letters", dead_letters, DLQ),
            ("records of retry topics", retries, RETRY),
            ("dispositions", dispositions, DLQ),
        ):
            size, took_s, look_ms = grown(add, topic, count, Path(folder))
            looked = "-" if add is dispositions else f"{look_ms:.1f}"
            rows.append(f"| {name} | {size:.0f} | {took_s:.0f} | {looked} |")
            sys.stderr.write(f"{rows[-1]}\n")
    head = [line for line in machine.told() if not line.startswith("- aiokafka")][:1]
    load = (
        f"- {count:,} of each, in a file of their own; figures are of a million. The seconds are "
        "CPU, without reading from Kafka."
    )
    return "\n".join(
        [
            "# How the console's index grows",
            "",
            *head,
            load,
            "- Repeat: `python -m benchmarks.console_index`.",
            "",
            "| A million | MB | CPU, s | one record, p95, ms |",
            "|---|--:|--:|--:|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500_000, help="of each kind")
    text = report(parser.parse_args().count)
    (FOLDER / "console_index.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
