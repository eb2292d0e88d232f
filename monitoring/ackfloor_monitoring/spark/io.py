"""The only reads: what leaves this file is a DataFrame of Kafka records, unchanged.

A batch read covers each partition from its earliest to its latest record at the moment Spark
plans it, committed records only: what an aborted transaction wrote and the control records of
transactions are no failures and are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ackfloor import KafkaUnreachable
from ackfloor_monitoring.spark.errors import KafkaRefused, ReadFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECT_TIMEOUT_S = 15.0

_BATCH = {
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "includeHeaders": "true",
    # A count that is silently short is worse than no count.
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.allow.auto.create.topics": "false",
    # The source seeks to a partition's end to learn where that is, and the fetch it leaves behind
    # there holds up the next one for Kafka's default of 500 ms: per partition, however small.
    "kafka.fetch.max.wait.ms": "10",
}
_UNREACHABLE = ("TimeoutException", "ConfigException")
_REFUSED = ("AuthenticationException", "AuthorizationException")


EVERY_GROUP = r"^.+--.+--(retry-[0-9]+[a-z]+|dlq)$"


def group_pattern(group: str) -> str:
    """The retry and dead-letter topics of one consumer group, as an anchored pattern."""
    # Anchored, because Spark's subscribePattern finds anywhere in the name.
    return rf"^.+--{re.escape(group)}--(retry-[0-9]+[a-z]+|dlq)$"


def list_topics(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    pattern: str,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> list[str]:
    """The names of the existing topics that match, sorted.

    Spark itself would try for three minutes to reach a broker that is away, and tells an empty
    topic from a missing one by nothing; so this asks first, through the client it brought along.

    Raises:
        KafkaUnreachable: no broker answered within `connect_timeout_s` seconds.
        KafkaRefused: the credentials or permissions do not do.
    """
    timeout_ms = str(int(connect_timeout_s * 1000))
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public name for its Java
    properties = jvm.java.util.HashMap()
    for name, value in kafka_options.items():
        if name.startswith("kafka."):
            properties.put(name.removeprefix("kafka."), value)
    properties.put("default.api.timeout.ms", timeout_ms)
    properties.put("request.timeout.ms", timeout_ms)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            names = [str(name) for name in client.listTopics().names().get()]
        finally:
            client.close(jvm.java.time.Duration.ZERO)
    except Py4JJavaError as error:
        raise _connection_error(error, kafka_options, connect_timeout_s) from error
    return sorted(name for name in names if re.search(pattern, name))


def read_topics(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    *,
    topics: Sequence[str] = (),
    pattern: str | None = None,
) -> DataFrame:
    """All committed records of the topics, with their headers, in the columns of `KAFKA_RECORD`.

    Args:
        spark: the session.
        kafka_options: from `options.kafka_options`; more options of Spark's source go in here.
        topics: names; a missing one fails the job.
        pattern: instead of names; anchor it, see `group_pattern`.
    """
    if bool(topics) == bool(pattern):
        raise ValueError(f"give either topics or a pattern, not topics={topics!r} {pattern=}")
    source = ("subscribePattern", pattern) if pattern else ("subscribe", ",".join(topics))
    options = {**_BATCH, **kafka_options, source[0]: source[1]}
    return spark.read.format("kafka").options(**options).load()


def read_failures(spark: SparkSession, table: str) -> DataFrame:
    """The table of failures as it is now; Spark's own error where there is none."""
    return spark.read.format("delta").load(table)


def load_class(spark: SparkSession, name: str) -> None:
    """Load a Java class, as a sign that its jar is here. Py4JJavaError where it is not."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


@contextmanager
def spark_failures_told(what: str = "the topics") -> Iterator[None]:
    """Around what makes Spark work: its errors, pages of Java each, become one sentence.

    Args:
        what: what Spark is about to read, or whatever else it needs.
    """
    try:
        yield
    except Py4JJavaError as error:
        kind, message = _root_cause(error)
        refused = kind.endswith(_REFUSED)
        raise (KafkaRefused if refused else ReadFailed)(
            f"Spark could not read {what}: {kind}: {message}"
        ) from error
    except PySparkException as error:
        raise ReadFailed(f"Spark could not read {what}: {_first_line(error)}") from error


def _connection_error(
    error: Py4JJavaError, kafka_options: Mapping[str, str], timeout_s: float
) -> KafkaUnreachable | KafkaRefused:
    servers = f"bootstrap_servers={kafka_options.get('kafka.bootstrap.servers')!r}"
    kind, message = _root_cause(error)
    if kind.endswith(_UNREACHABLE):
        return KafkaUnreachable(
            f"{servers}: no Kafka broker answered within {timeout_s:g} s ({message}); "
            "check the address, that a broker listens there, and the security settings"
        )
    return KafkaRefused(
        f"{servers} refused this client ({kind}: {message}); check the security settings and the "
        "permission to describe and read the topics"
    )


def _first_line(error: PySparkException) -> str:
    return str(error).strip().partition("\n")[0]


def _root_cause(error: Py4JJavaError) -> tuple[str, str]:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    message = str(cause.getMessage() or "").strip()
    return cause.getClass().getSimpleName(), message.partition("\n")[0]
