"""The only reads from Kafka: what leaves this file is a DataFrame of its records, unchanged.

Committed records only: what an aborted transaction wrote and the control records of transactions
are no failures and are not counted. A batch read covers each partition from its earliest to its
latest record at the moment Spark plans it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ackfloor import KafkaUnreachable
from ackfloor_monitoring.spark.spark_errors import KafkaRefused, ReadFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

CONNECT_TIMEOUT_S = 15.0

_SOURCE = {
    "includeHeaders": "true",
    # A count that is silently short is worse than no count.
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.allow.auto.create.topics": "false",
    # The source seeks to a partition's end to learn where that is, and the fetch it leaves behind
    # there holds up the next one for Kafka's default of 500 ms: per partition, however small.
    "kafka.fetch.max.wait.ms": "10",
}
_BATCH = {**_SOURCE, "startingOffsets": "earliest", "endingOffsets": "latest"}
_UNREACHABLE = ("TimeoutException", "ConfigException")
_REFUSED = ("AuthenticationException", "AuthorizationException")


EVERY_GROUP = r"^.+--.+--(retry-[0-9]+[a-z]+|dlq)$"


def group_pattern(group: str | None) -> str:
    """The retry and dead-letter topics of a consumer group, or of all, as an anchored pattern."""
    if not group:
        return EVERY_GROUP
    # Anchored, because Spark's subscribePattern finds anywhere in the name.
    return rf"^.+--{re.escape(group)}--(retry-[0-9]+[a-z]+|dlq)$"


def list_topics(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    pattern: str,
    connect_timeout_s: float | None = None,
) -> list[str]:
    """The names of the existing topics that match, sorted.

    Spark itself would try for three minutes to reach a broker that is away, and tells an empty
    topic from a missing one by nothing; so this asks first, through the client it brought along.

    Raises:
        KafkaUnreachable: no broker answered within `connect_timeout_s` seconds, or where that is
            not given within `CONNECT_TIMEOUT_S`.
        KafkaRefused: the credentials or permissions do not do.
    """
    names = _ask(spark, kafka_options, _names, connect_timeout_s)
    return sorted(name for name in names if re.search(pattern, name))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers know it now.

    Attributes:
        id: as Kafka prints it; another one when the topic was deleted and made anew.
        spans: for each partition the positions of its first record and behind its last.
    """

    name: str
    id: str
    spans: Mapping[int, tuple[int, int]]


def topic_ids(
    spark: SparkSession, kafka_options: Mapping[str, str], pattern: str
) -> dict[str, str]:
    """The ids of the existing topics that match, by their names. Raises as `list_topics`."""

    def ask(jvm: Any, client: Any) -> dict[str, str]:
        names = [name for name in _names(jvm, client) if re.search(pattern, name)]
        return {name: each.topicId().toString() for name, each in _described(jvm, client, names)}

    return _ask(spark, kafka_options, ask)


def describe_topics(
    spark: SparkSession, kafka_options: Mapping[str, str], pattern: str
) -> list[Topic]:
    """The existing topics that match, with the spans of their logs. Raises as `list_topics`."""

    def ask(jvm: Any, client: Any) -> list[Topic]:
        names = [name for name in _names(jvm, client) if re.search(pattern, name)]
        found = list(_described(jvm, client, names))
        partitions = [
            (name, each.partition()) for name, topic in found for each in topic.partitions()
        ]
        first = _positions(
            jvm, client, partitions, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest()
        )
        end = _positions(
            jvm, client, partitions, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        )
        return [
            Topic(
                name,
                topic.topicId().toString(),
                {
                    part: (first[name, part], end[name, part])
                    for of, part in partitions
                    if of == name
                },
            )
            for name, topic in found
        ]

    return _ask(spark, kafka_options, ask)


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


def stream_topics(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    pattern: str,
    start: Mapping[str, Mapping[int, int]],
    *,
    at_most: int,
) -> DataFrame:
    """A stream of the committed records of all topics that match, also of those that come later.

    Args:
        spark: the session.
        kafka_options: from `options.connection_options`.
        pattern: an anchored one.
        start: the positions to begin at, by topic and partition: of every partition there is.
            What comes later is read from its first record.
        at_most: how many records a batch takes.
    """
    positions = {
        topic: {str(part): at for part, at in each.items()} for topic, each in start.items()
    }
    options = {
        **_SOURCE,
        **kafka_options,
        "subscribePattern": pattern,
        "startingOffsets": json.dumps(positions) if positions else "earliest",
        "maxOffsetsPerTrigger": str(at_most),
    }
    return spark.readStream.format("kafka").options(**options).load()


def load_class(spark: SparkSession, name: str) -> None:
    """Load a Java class, as a sign that its jar is here. Py4JJavaError where it is not."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


@contextmanager
def readable_spark_errors(what: str = "the topics") -> Iterator[None]:
    """Around what makes Spark work: its errors, pages of Java each, become one sentence.

    Args:
        what: what Spark is about to read, or whatever else it needs.
    """
    try:
        yield
    except Py4JJavaError as error:
        kind, message = root_cause(error)
        refused = kind.endswith(_REFUSED)
        raise (KafkaRefused if refused else ReadFailed)(
            f"Spark could not read {what}: {kind}: {message}"
        ) from error
    except PySparkException as error:
        raise ReadFailed(f"Spark could not read {what}: {_first_line(error)}") from error


def _ask(
    spark: SparkSession,
    kafka_options: Mapping[str, str],
    question: Callable[[Any, Any], T],
    timeout_s: float | None = None,
) -> T:
    """What the brokers answer to a question that is given Java and an admin client."""
    timeout_s = CONNECT_TIMEOUT_S if timeout_s is None else timeout_s
    timeout_ms = str(int(timeout_s * 1000))
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
            return question(jvm, client)
        finally:
            client.close(jvm.java.time.Duration.ZERO)
    except Py4JJavaError as error:
        raise _connection_error(error, kafka_options, timeout_s) from error


def _names(_: Any, client: Any) -> list[str]:
    return [str(name) for name in client.listTopics().names().get()]


def _described(jvm: Any, client: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The descriptions of these topics; one that has just been deleted has none."""
    asked = jvm.java.util.ArrayList()
    for name in names:
        asked.add(name)
    futures = client.describeTopics(asked).topicNameValues()
    for name in names:
        try:
            yield name, futures.get(name).get()
        except Py4JJavaError as error:
            if not root_cause(error)[0].endswith("UnknownTopicOrPartitionException"):
                raise


def _positions(
    jvm: Any, client: Any, partitions: Collection[tuple[str, int]], which: Any
) -> dict[tuple[str, int], int]:
    asked = jvm.java.util.HashMap()
    for name, partition in partitions:
        asked.put(jvm.org.apache.kafka.common.TopicPartition(name, partition), which)
    found = client.listOffsets(asked).all().get()
    return {(each.topic(), each.partition()): found.get(each).offset() for each in found}


def _connection_error(
    error: Py4JJavaError, kafka_options: Mapping[str, str], timeout_s: float
) -> KafkaUnreachable | KafkaRefused:
    servers = f"bootstrap_servers={kafka_options.get('kafka.bootstrap.servers')!r}"
    kind, message = root_cause(error)
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


def java_causes(exception: Any) -> list[tuple[str, str]]:
    """Class and message of a Java exception and of each that caused it, the root last."""
    causes = []
    while exception is not None:
        message = str(exception.getMessage() or "").strip()
        causes.append((exception.getClass().getSimpleName(), message))
        exception = exception.getCause()
    return causes


def root_cause(error: Py4JJavaError) -> tuple[str, str]:
    """The class of the innermost Java exception, and the first line of what it says."""
    *_, last = java_causes(error.java_exception)
    return last[0], last[1].partition("\n")[0]
