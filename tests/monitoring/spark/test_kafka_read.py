"""Reading topics of a real broker: every committed record of the group, and no other."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import functions as F

from ackfloor import KafkaUnreachable
from ackfloor_monitoring.spark.setup.kafka_options import kafka_options
from ackfloor_monitoring.spark.spark_errors import KafkaRefused, ReadFailed
from ackfloor_monitoring.spark.table import kafka_reads as io
from ackfloor_monitoring.spark.table import table_frames as frames

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark")]

Headers = list[tuple[str, str | bytes | None]]
PARTITIONS = 2
NOON_MS = 1_772_366_400_000


@dataclass(frozen=True)
class Failures:
    """A group whose topics hold records of all kinds."""

    bootstrap_servers: str
    group: str

    def topic(self, ending: str, group: str | None = None) -> str:
        """A topic of this group, or of another one."""
        return f"orders--{group or self.group}--{ending}"


def failed(reason: str, error: str, attempt: int) -> Headers:
    """The headers of a record that a worker parked."""
    return [
        ("own", b"1"),
        ("own", b"\xff\xfe"),
        ("ackfloor.handler", b"bill"),
        ("ackfloor.reason", reason.encode()),
        ("ackfloor.error.type", error.encode()),
        ("ackfloor.attempt", str(attempt).encode()),
        ("ackfloor.failed_at", str(NOON_MS + attempt * 1000).encode()),
    ]


ODD: list[Headers] = [
    [],
    [("ackfloor.handler", None), ("ackfloor.attempt", b"x"), ("", b"")],
    [("ackfloor.handler", b"\xc3\x28"), ("ackfloor.failed_at", b"99999999999999999999")],
    [*failed("error", "ValueError", 9), ("ackfloor.attempt", b"3"), ("kafka_dlt-x", b"\x00\x01")],
]


@pytest.fixture(scope="module")
def failures(bootstrap_servers: str) -> Failures:
    """Tiers, a dead-letter topic, and around them what must not be read."""
    made = Failures(bootstrap_servers, f"spark.{uuid.uuid4().hex[:8]}")
    # One character less, any character for the dot: neither is this group.
    others = [made.group + "2", made.group.replace(".", "_x"), made.group[1:]]
    topics = [made.topic(ending) for ending in ("retry-1s", "retry-5s", "dlq", "dispositions")]
    topics += [made.topic("dlq", other) for other in others]
    topics += [f"refunds--{made.group}--dlq", f"{made.topic('dlq')}-copy"]
    create(bootstrap_servers, topics)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(300):
        slow = failed("timeout", "ConsumeTimeout", 1 + number % 4)
        producer.produce(made.topic("retry-1s"), b"x", b"%d" % number, headers=slow)
    for _ in range(40):
        producer.produce(made.topic("dlq"), None, None, headers=failed("exhausted", "KeyError", 7))
    for headers in ODD:
        producer.produce(made.topic("dlq"), b"not json", b"", headers=headers)
    for topic in (made.topic("dispositions"), *topics[4:7], topics[8]):
        producer.produce(topic, b"{}", headers=failed("error", "NotOurs", 1))
    assert producer.flush(60) == 0
    return made


@pytest.fixture(scope="module")
def transactions(failures: Failures) -> Iterator[None]:
    """Five records of a committed transaction, seven of an aborted and three of an open one."""
    topic = failures.topic("retry-5s")
    # The open one outlasts the tests: nobody ends it but its producer.
    config = {"bootstrap.servers": failures.bootstrap_servers, "transaction.timeout.ms": 900_000}
    done, hanging = (Producer({**config, "transactional.id": f"{topic}-{n}"}) for n in range(2))
    done.init_transactions(60)
    for count, end in ((5, done.commit_transaction), (7, done.abort_transaction)):
        done.begin_transaction()
        for _ in range(count):
            done.produce(topic, b"x", partition=0, headers=failed("error", "ValueError", count))
        assert done.flush(60) == 0
        end(30)
    hanging.init_transactions(60)
    hanging.begin_transaction()
    for _ in range(3):
        hanging.produce(topic, b"x", partition=1, headers=failed("error", "ValueError", 1))
    assert hanging.flush(60) == 0
    yield
    hanging.abort_transaction(60)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, failures: Failures, transactions: None) -> list[Row]:
    """What is read of the group, as the tests below look at it."""
    kafka = kafka_options(failures.bootstrap_servers)
    topics = io.list_topics(spark, kafka, io.group_pattern(failures.group))
    assert f"refunds--{failures.group}--dlq" in topics
    events = io.read_topics(spark, kafka, topics=topics).transform(frames.failure_events)
    columns = ("topic", "stage", "handler", "reason", "error_type", "attempt", "unreadable")
    at_ms = F.unix_millis("event_time").alias("at_ms")
    with io.readable_spark_errors():
        return events.select(*columns, at_ms).collect()


def test_counts_by_topic_are_those_of_a_plain_consumer(rows: list[Row], failures: Failures) -> None:
    """Aborted, open and control records and foreign topics do not count."""
    counted = Counter(row["topic"] for row in rows)
    assert counted == {
        failures.topic("retry-1s"): 300,
        failures.topic("retry-5s"): 5,
        failures.topic("dlq"): 44,
    }
    for topic, records in counted.items():
        assert records == consumed(failures.bootstrap_servers, topic)


def test_causes_come_from_the_headers(rows: list[Row]) -> None:
    """Stage, handler, reason and error, whatever else a record carries."""
    names = ("stage", "handler", "reason", "error_type")
    counted = Counter(tuple(row[name] for name in names) for row in rows)
    assert counted == {
        ("retry", "bill", "timeout", "ConsumeTimeout"): 300,
        ("retry", "bill", "error", "ValueError"): 5,
        ("dlq", "bill", "exhausted", "KeyError"): 40,
        ("dlq", "bill", "error", "ValueError"): 1,
        ("dlq", None, None, None): 3,
    }
    timeouts = {(row["attempt"], row["at_ms"]) for row in rows if row["reason"] == "timeout"}
    assert timeouts == {(attempt, NOON_MS + attempt * 1000) for attempt in (1, 2, 3, 4)}


def test_unreadable_headers_are_told_not_dropped(rows: list[Row], failures: Failures) -> None:
    """Two dead letters have headers that can not be read, and are there like any other."""
    unreadable = [row["topic"] for row in rows if row["unreadable"]]
    assert unreadable == [failures.topic("dlq")] * 2


def test_what_is_no_failure_reaches_spark_unchanged(
    spark: SparkSession, failures: Failures
) -> None:
    """Key, value and headers come as they were written, repeated names and raw bytes included."""
    options = kafka_options(failures.bootstrap_servers)
    records = io.read_topics(spark, options, topics=[failures.topic("dlq")])
    rows = records.where("value = X'6E6F74206A736F6E'").collect()
    headers = [
        [(header["key"], header["value"] and bytes(header["value"])) for header in row["headers"]]
        for row in rows
        if row["headers"]
    ]
    assert {bytes(row["key"]) for row in rows} == {b""}
    assert sorted(headers, key=len) == sorted(filter(None, ODD), key=len)


def test_a_broker_that_is_away_is_told_in_time(spark: SparkSession) -> None:
    """Spark alone would try for three minutes."""
    with pytest.raises(KafkaUnreachable, match=r"no Kafka broker answered within 0\.5 s") as caught:
        io.list_topics(spark, kafka_options("127.0.0.1:1"), ".", connect_timeout_s=0.5)
    assert caught.value.exit_code == 4


def test_a_name_that_resolves_nowhere_is_told(spark: SparkSession) -> None:
    """A mistyped host is a broker that is away."""
    with pytest.raises(KafkaUnreachable, match=r"nowhere\.invalid"):
        io.list_topics(spark, kafka_options("nowhere.invalid:9092"), ".", connect_timeout_s=0.5)


def test_a_login_that_makes_no_sense_is_told(spark: SparkSession, failures: Failures) -> None:
    """What the Java client itself refuses is one sentence, without the password."""
    security = {"security.protocol": "sasl_plaintext", "kafka.sasl.jaas.config": "hush"}
    with pytest.raises(KafkaRefused, match="check the security settings") as caught:
        io.list_topics(spark, kafka_options(failures.bootstrap_servers, security), ".")
    assert "\n" not in str(caught.value)


def test_a_topic_that_vanished_fails_the_read(spark: SparkSession, failures: Failures) -> None:
    """A count that is silently short is worse than none: one sentence names what is wrong."""
    options = kafka_options(failures.bootstrap_servers)
    gone = io.read_topics(spark, options, topics=[failures.topic("retry-9s")])
    with pytest.raises(ReadFailed, match="UnknownTopicOrPartition"), io.readable_spark_errors():
        gone.count()


def create(bootstrap_servers: str, topics: list[str]) -> None:
    """Create topics and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = [NewTopic(topic, PARTITIONS, 1) for topic in topics]
    for done in admin.create_topics(new).values():
        done.result(60)


def consumed(bootstrap_servers: str, topic: str) -> int:
    """How many records a plain consumer gets from the beginning to the committed end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "counting",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        records, ended = 0, set[int | None]()
        until_s = time.monotonic() + 60
        while len(ended) < PARTITIONS:
            assert time.monotonic() < until_s, f"{topic}: not read to its end within 60 s"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records += 1
            # Of its connections the client says something as well.
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return records
    finally:
        consumer.close()
