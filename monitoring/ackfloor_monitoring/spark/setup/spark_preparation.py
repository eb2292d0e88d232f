"""Prepares Spark's start: fetches its jars and makes an archive of the classes that it loads.

The training run for the archive stores a few made-up failures and reports on them, from rows and
from kept days, so it loads the classes of ingest and the report, except Kafka's client.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from ackfloor.commits import Settled
from ackfloor.core.records.redaction import Redaction
from ackfloor.testing.local_kafka.class_archive import ArchiveFailed, ClassArchive
from ackfloor.testing.local_kafka.java import JavaChoice
from ackfloor_monitoring.spark.report.build import Since
from ackfloor_monitoring.spark.report.job import failure_history
from ackfloor_monitoring.spark.report.kept.kept_figures import kept_figures
from ackfloor_monitoring.spark.setup.session import class_archive, local_session, spark_java
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars
from ackfloor_monitoring.spark.table import store
from ackfloor_monitoring.spark.table.columns import HEADER_COLUMNS, KAFKA_RECORD
from ackfloor_monitoring.spark.table.redacted_rows import redacted
from ackfloor_monitoring.spark.table.table_frames import failure_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPIC = "orders--prepare--orders--retry-1m"
_ROWS = 20
_DAYS = 4
#: Most of it is writing the archive.
_ENDS_WITHIN_S = 600.0
_LONGEST_WORD = 500


def prepare_spark(
    java: JavaChoice | None = None, *, tell: Callable[[str], None]
) -> tuple[ClassArchive, bool]:
    """Fetch Spark's jars and make the archive of its classes, where missing.

    Args:
        java: as in `local_session`.
        tell: called with a sentence before a long step.

    Returns the archive, and whether it was made now.

    Raises:
        ArchiveFailed: this Java, or this folder, can't have one; the jars are fetched.
        MissingExtra, SparkNotStarted, JarRefused, JarsUnavailable: as they say.
    """
    archive = class_archive(spark_java(java), spark_jars())
    if archive.works():
        return archive, False
    with archive.training() as options:
        tell("Spark runs once, and Java writes down what it has loaded; a minute or two")
        _train([java or "", *options])
    return archive, True


def _train(arguments: Sequence[str]) -> None:
    """Run this file: when its Python process exits, Java writes the archive and exits."""
    module = "ackfloor_monitoring.spark.setup.spark_preparation"
    command = [sys.executable, "-m", module, *arguments]
    try:
        # The captured output ends when the last process does.
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ENDS_WITHIN_S,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ArchiveFailed(f"the training run took more than {_ENDS_WITHIN_S:.0f} s") from None
    if ran.returncode:
        *_, last = ran.stdout.strip().splitlines() or ["it said nothing"]
        raise ArchiveFailed(f"the training run failed: {last[:_LONGEST_WORD]}")


def _use(spark: SparkSession, table: str) -> None:
    now = datetime.now(UTC)
    # Days are kept where there are some.
    times = [now - timedelta(days=number % _DAYS) for number in range(_ROWS)]
    records = spark.createDataFrame([_record(*each) for each in enumerate(times)], KAFKA_RECORD)
    store.open_table(spark, table)
    rows = records.transform(failure_rows, {_TOPIC: "prepare"}, now)
    store.append(redacted(rows, Redaction()), table)
    failure_history(spark, table, group=None, since=Since(), clients=None, made_at=now)
    with kept_figures(spark, table, _commits, now):
        pass
    failure_history(spark, table, group=None, since=Since(), clients=None, made_at=now, keep=True)


def _commits(_: Mapping[str, Sequence[str]]) -> list[Settled]:
    return [Settled(_TOPIC, "prepare", 0, 1, [(2, 3)])]


def _record(offset: int, now: datetime) -> tuple[object, ...]:
    """A parked record, in the columns of `KAFKA_RECORD`, with all of our headers."""
    texts = {"text": "prepare", "number": "1", "time": str(round(1000 * now.timestamp()))}
    headers = [(spec.header, texts[spec.kind].encode()) for spec in HEADER_COLUMNS]
    return b"key", b"value", _TOPIC, 0, offset, now, 0, headers


def main() -> None:
    """The training run; arguments: which Java, or nothing, and its options."""
    java, *options = sys.argv[1:]
    choice = cast("JavaChoice", java) if java else None
    with (
        TemporaryDirectory(prefix="ackfloor-prepare-") as folder,
        local_session("ackfloor prepare", java=choice, java_options=options) as spark,
    ):
        _use(spark, f"{folder}/failures")


if __name__ == "__main__":
    main()
