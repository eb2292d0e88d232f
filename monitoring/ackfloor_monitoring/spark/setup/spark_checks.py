"""The doctor: is everything here that Spark needs, which versions are they, and what to do if not.

Each check tells one thing. The later ones need a session; where it does not start, they are told
as not tried, so that the first thing to mend is always the first that is marked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from ackfloor import AckfloorError
from ackfloor.testing.local_kafka.java import find_java
from ackfloor_monitoring.spark.setup.session import (
    class_archive,
    spark_java,
    spark_session,
    submitted,
)
from ackfloor_monitoring.spark.setup.spark_jars import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the pinned jars were tried with.
PYSPARK_SERIES = "4.2."
_INSTALL = "pip install 'ackfloor[spark]'"

State = Literal["ok", "bad", "not tried"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found; `fix` says what to do where it is bad."""

    check: str
    state: State
    detail: str
    fix: str = ""


def examine(kafka_options: Mapping[str, str] | None = None) -> Iterator[CheckResult]:
    """Every check in its order, each told as soon as it is done.

    Args:
        kafka_options: how to reach the brokers; None leaves them out.
    """
    yield CheckResult("python", "ok", f"{sys.version.split()[0]} ({sys.executable})")
    found = [_package(name) for name in ("pyspark", "pandas", "pyarrow")]
    if submitted():
        found.append(CheckResult("java and jars", "ok", "those that spark-submit was given"))
    else:
        found += [_check("java", _java), _check("jars", _jars)]
    yield from found
    archive = [] if submitted() else ["class archive"]
    later = ["session", "delta", "kafka connector", *(["brokers"] if kafka_options else [])]
    if any(each.state == "bad" for each in found):
        yield from (CheckResult(check, "not tried", "") for check in (*archive, *later))
        return
    yield from (_check(check, _archive) for check in archive)
    yield from _with_session(later, kafka_options)


def _with_session(
    later: Sequence[str], kafka_options: Mapping[str, str] | None
) -> Iterator[CheckResult]:
    with ExitStack() as stack:
        sessions: list[SparkSession] = []

        def start() -> str:
            began = time.monotonic()
            sessions.append(stack.enter_context(spark_session("ackfloor spark doctor")))
            context = sessions[0].sparkContext
            return f"{context.master}, started in {time.monotonic() - began:.1f} s"

        started = _check("session", start)
        yield started
        if started.state == "bad":
            yield from (CheckResult(check, "not tried", "") for check in later[1:])
            return
        (spark,) = sessions
        yield _check("delta", lambda: _delta(spark))
        yield _check("kafka connector", lambda: _connector(spark))
        if kafka_options is not None:
            yield _check("brokers", lambda: _brokers(spark, kafka_options))


def _check(check: str, run: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(check, "ok", run())
    except AckfloorError as error:
        return CheckResult(check, "bad", "", str(error))


def _package(name: str) -> CheckResult:
    try:
        found = version(name)
    except PackageNotFoundError:
        return CheckResult(name, "bad", "not installed", _INSTALL)
    if name == "pyspark" and not found.startswith(PYSPARK_SERIES):
        why = f"{found}; the connector and Delta jars are made for {PYSPARK_SERIES}x"
        return CheckResult(name, "bad", why, _INSTALL)
    return CheckResult(name, "ok", found)


def _java() -> str:
    java = find_java()
    return f"{java.version} ({java.origin}: {java.executable})"


def _jars() -> str:
    jars = spark_jars()
    return f"{len(jars)}, with the pinned checksums: {', '.join(jar.name for jar in jars)}"


def _archive() -> str:
    archive = class_archive(spark_java(), spark_jars())
    if archive.works():
        return str(archive.path)
    return "none; sessions start in half the time with one: ackfloor spark prepare"


def _delta(spark: SparkSession) -> str:
    from ackfloor_monitoring.spark.table import kafka_reads as io

    if submitted():
        # A folder of this machine is not one of the workers'.
        with io.readable_spark_errors("the jars"):
            io.load_class(spark, "io.delta.sql.DeltaSparkSessionExtension")
        return "loaded"
    with TemporaryDirectory(prefix="ackfloor-doctor-") as folder, io.readable_spark_errors("Delta"):
        path = f"{folder}/table"
        spark.range(1).write.format("delta").save(path)
        rows = spark.read.format("delta").load(path).count()
    return f"{rows} row written and read back"


def _connector(spark: SparkSession) -> str:
    from ackfloor_monitoring.spark.table import kafka_reads as io

    with io.readable_spark_errors("the Kafka connector"):
        io.read_topics(spark, {"kafka.bootstrap.servers": "localhost:9"}, topics=["none"])
    return "loaded"


def _brokers(spark: SparkSession, kafka_options: Mapping[str, str]) -> str:
    from ackfloor_monitoring.spark.table import kafka_reads as io

    topics = io.list_topics(spark, kafka_options, io.EVERY_GROUP)
    groups = {topic.split("--")[1] for topic in topics}
    servers = kafka_options["kafka.bootstrap.servers"]
    return f"{servers}: {len(topics)} retry and dead-letter topics of {len(groups)} groups"
