"""KafkaSink and KafkaPublisher on a real broker: one honest report for each record."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ackfloor.core.parking.pending_write import PendingWrite
from ackfloor.errors import PublishFailed
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.produce.publisher import KafkaPublisher, _Order
from ackfloor.kafka.produce.sink import KafkaSink
from tests.framework.kafka.wire import Given, fresh, make_topic, options, parcel, until

pytestmark = [pytest.mark.kafka]

MIB = 1024 * 1024


@dataclass
class Reports:
    """Writes down what a sink reports."""

    published: list[PendingWrite] = field(default_factory=list)
    failed: list[tuple[PendingWrite, str, bool]] = field(default_factory=list)
    together: list[int] = field(default_factory=list)

    def on_published(self, parcels: Sequence[PendingWrite]) -> None:
        self.published += parcels
        self.together.append(len(parcels))

    def on_publish_failed(self, parcel: PendingWrite, error: str, *, too_large: bool) -> None:
        self.failed.append((parcel, error, too_large))


def opened(servers: str, **producer: object) -> tuple[KafkaSink, Reports]:
    """A sink ready to write."""
    given = options(servers)
    sink, reports = KafkaSink(KafkaOptions(producer={**given.producer, **producer})), Reports()
    sink.open(reports)
    return sink, reports


def settle(sink: KafkaSink) -> None:
    """Poll until every report is in."""

    def quiet() -> bool:
        sink.poll()
        return sink.pending() == 0

    until(quiet, 60)


def read_one(servers: str, topic: str) -> Message:
    """The first record of a topic's partition 0."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": fresh("r")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        # What the client says of its connections is no record.
        if message is not None and message.error() is None:
            found.append(message)
        return bool(found)

    try:
        until(read)
        return found[0]
    finally:
        consumer.close()


def test_a_parked_record_is_byte_identical(bootstrap_servers: str) -> None:
    """Key, value and headers come out as they went in: empty, odd, repeated, not UTF-8, null."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers)
    headers = [("a", b"1"), ("a", b"\xff\xfe"), ("", b""), ("n", None)]
    sink.publish(parcel(topic, Given(b"\x00\xff", b""), headers=headers))
    settle(sink)
    assert len(reports.published) == 1
    message = read_one(bootstrap_servers, topic)
    assert (message.key(), message.value()) == (b"", b"\x00\xff")
    assert message.headers() == headers
    sink.close(5)


def test_a_tombstone_stays_one(bootstrap_servers: str) -> None:
    """A null value and a null key are not empty ones."""
    topic = make_topic(bootstrap_servers)
    sink, _ = opened(bootstrap_servers)
    sink.publish(parcel(topic, Given(None, None)))
    settle(sink)
    message = read_one(bootstrap_servers, topic)
    assert (message.key(), message.value()) == (None, None)
    sink.close(5)


def test_a_large_record_is_not_refused_by_the_client(bootstrap_servers: str) -> None:
    """Rule 10: the client's own limit near 1 MB is raised; the topic's decides."""
    topic = make_topic(bootstrap_servers, 1, **{"max.message.bytes": str(4 * MIB)})
    sink, reports = opened(bootstrap_servers, **{"compression.type": "none"})
    sink.publish(parcel(topic, Given(b"x" * (3 * MIB))))
    settle(sink)
    assert (len(reports.published), reports.failed) == (1, [])
    sink.close(5)


def test_a_record_over_the_topics_limit_is_too_large(bootstrap_servers: str) -> None:
    """The broker's refusal is told as such, so that headers can be shed."""
    topic = make_topic(bootstrap_servers, 1, **{"max.message.bytes": "1000"})
    sink, reports = opened(bootstrap_servers, **{"compression.type": "none"})
    sink.publish(parcel(topic, Given(b"x" * 5_000)))
    settle(sink)
    assert [too_large for _, _, too_large in reports.failed] == [True]
    sink.close(5)


def test_records_that_fit_alone_are_not_too_large_together(bootstrap_servers: str) -> None:
    """A batch over the topic's limit is refused whole; each of its records is then tried alone."""
    topic = make_topic(bootstrap_servers, 1, **{"max.message.bytes": "3000"})
    sink, reports = opened(bootstrap_servers, **{"compression.type": "none", "linger.ms": 200})
    parcels = [parcel(topic, Given(b"x" * 1_000)) for _ in range(20)]
    parcels.insert(7, parcel(topic, Given(b"x" * 5_000)))
    for made in parcels:
        sink.publish(made)
    settle(sink)
    assert [(made, too_large) for made, _, too_large in reports.failed] == [(parcels[7], True)]
    assert len(reports.published) == 20
    sink.close(5)


def test_confirmations_of_a_poll_are_reported_together(bootstrap_servers: str) -> None:
    """Each once, and none after the sink was closed."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers)
    parcels = [parcel(topic, Given()) for _ in range(50)]
    for made in parcels:
        sink.publish(made)
    sink.close(60)
    assert (reports.published, reports.together) == (parcels, [50])
    sink.poll()
    assert (reports.together, sink.pending()) == ([50], 0)


def test_a_producer_that_failed_for_good_is_replaced(bootstrap_servers: str) -> None:
    """Rule 10: its outstanding parcels have failed, each once, and the next one is written."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers, **{"linger.ms": 20_000})
    lost = [parcel(topic, Given()), parcel(topic, Given())]
    for made in lost:
        sink.publish(made)
    broken = sink._producer
    # No client call makes an idempotent producer fail for good, so the report of one is given.
    sink._delivered(lost[0], KafkaError(KafkaError._FATAL, "fenced", fatal=True), None)
    assert [made for made, _, _ in reports.failed] == [lost[0]]
    after = parcel(topic, Given())
    sink.publish(after)
    assert [made for made, _, _ in reports.failed] == lost
    assert sink._producer is not broken
    sink.close(60)
    assert reports.published == [after]


def test_a_park_that_no_broker_has_confirmed_has_failed(bootstrap_servers: str) -> None:
    """The client takes some for written because a later one was; see `delivery_reports`."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers, **{"linger.ms": 20_000})
    unseen = parcel(topic, Given())
    sink.publish(unseen)
    sink._delivered(unseen, None, Message(topic=topic, partition=0))
    assert reports.published == []
    assert [(made, too_large) for made, _, too_large in reports.failed] == [(unseen, False)]
    assert "no broker has said so" in reports.failed[0][1]
    sink.close(60)


def test_an_idle_sink_gathers_no_log_lines_while_the_broker_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Lines wait in memory until the sink is polled, which may be never."""
    caplog.set_level("DEBUG")
    given = {"reconnect.backoff.max.ms": 100}
    sink, _ = opened("127.0.0.1:1", **given)
    talkative = Producer(
        {"bootstrap.servers": "127.0.0.1:1", **given}, logger=logging.getLogger("talkative")
    )

    def lines(logger: str) -> int:
        return sum(record.name == logger for record in caplog.records)

    until(lambda: talkative.poll(0.1) or lines("talkative") > 2)
    sink.poll()
    assert lines("ackfloor.kafka") == 0
    sink.close(0.1)


def test_a_missing_topic_is_a_failed_park_in_bounded_time(bootstrap_servers: str) -> None:
    """Rule 10: it is not created, and not waited for without end."""
    sink, reports = opened(bootstrap_servers)
    sink.publish(parcel(fresh("missing"), Given()))
    settle(sink)
    assert len(reports.failed) == 1
    assert reports.failed[0][2] is False
    sink.close(5)


def test_a_missing_partition_is_a_failed_park(bootstrap_servers: str) -> None:
    """A topic that has fewer partitions than it had fails the park, and only that."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers)
    sink.publish(parcel(topic, Given(), partition=9))
    sink.publish(parcel(topic, Given()))
    settle(sink)
    assert (len(reports.published), len(reports.failed)) == (1, 1)
    sink.close(5)


def test_what_produce_raises_is_a_failed_park(bootstrap_servers: str) -> None:
    """Rule 10: a full queue is reported like any other failure, in the call itself."""
    topic = make_topic(bootstrap_servers)
    sink, reports = opened(bootstrap_servers, **{"queue.buffering.max.messages": 2})
    for _ in range(5):
        sink.publish(parcel(topic, Given()))
    settle(sink)
    assert len(reports.published) + len(reports.failed) == 5
    assert any("Queue full" in error for _, error, _ in reports.failed)
    sink.close(5)


def test_no_report_at_the_end_is_a_failure() -> None:
    """Rule 10: what was not confirmed when the sink closed is still open."""
    sink, reports = opened("127.0.0.1:1")
    sink.publish(parcel("anything", Given()))
    assert sink.pending() == 1
    sink.close(0.1)
    assert [error for _, error, _ in reports.failed] == ["not confirmed before the worker closed"]
    sink.poll()
    sink.publish(parcel("anything", Given()))
    assert len(reports.failed) == 2


def test_publish_is_confirmed_from_any_thread(bootstrap_servers: str) -> None:
    """Each call is answered once, after the broker has it."""
    topic = make_topic(bootstrap_servers)
    publisher = KafkaPublisher(options(bootstrap_servers))
    answers: list[BaseException | None] = []

    def write() -> None:
        for _ in range(50):
            publisher.publish(topic, b"v", None, (), answers.append)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(answers) == 200)
    assert set(answers) == {None}
    publisher.close(5)


def test_a_failed_publish_says_so(bootstrap_servers: str) -> None:
    """A missing topic, and a worker that has closed, are errors of the call."""
    publisher = KafkaPublisher(options(bootstrap_servers))
    answers: list[BaseException | None] = []
    publisher.publish(fresh("missing"), b"v", None, (), answers.append)
    until(lambda: answers, 60)
    publisher.close(5)
    publisher.publish("anything", b"v", None, (), answers.append)
    assert [type(answer) for answer in answers] == [PublishFailed, PublishFailed]


def test_a_publish_that_fits_alone_is_not_refused_for_its_neighbours(
    bootstrap_servers: str,
) -> None:
    """A batch over the topic's limit is refused whole; its records are then written one by one."""
    topic = make_topic(bootstrap_servers, 1, **{"max.message.bytes": "3000"})
    given = {**options(bootstrap_servers).producer, "compression.type": "none", "linger.ms": 200}
    publisher = KafkaPublisher(KafkaOptions(producer=given))
    answers: list[BaseException | None] = []
    for size in (*[1_000] * 10, 5_000, *[1_000] * 10):
        publisher.publish(topic, b"x" * size, None, (), answers.append)
    until(lambda: len(answers) == 21)
    publisher.close(5)
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 1
    assert "MSG_SIZE_TOO_LARGE" in str(refused[0])


def test_a_publishing_producer_that_failed_for_good_is_replaced(bootstrap_servers: str) -> None:
    """The call that met the failure is told, those after it are confirmed."""
    topic = make_topic(bootstrap_servers)
    publisher = KafkaPublisher(options(bootstrap_servers))
    answers: list[BaseException | None] = []
    publisher.publish(topic, b"v", None, (), answers.append)
    until(lambda: answers)
    [broken] = publisher._producers.values()
    order = _Order(topic, b"v", None, (), answers.append)
    fatal = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
    publisher._delivered(order, broken, False, fatal, None)  # type: ignore[arg-type]
    assert isinstance(answers[1], PublishFailed)
    publisher.publish(topic, b"v", None, (), answers.append)
    until(lambda: len(answers) == 3)
    assert answers[2] is None
    assert broken not in publisher._producers.values()
    publisher.close(5)


def test_a_publish_that_no_broker_has_confirmed_has_failed(bootstrap_servers: str) -> None:
    """It may or may not have been written, and the handler is to know."""
    topic = make_topic(bootstrap_servers)
    publisher = KafkaPublisher(options(bootstrap_servers))
    answers: list[BaseException | None] = []
    publisher.publish(topic, b"v", None, (), answers.append)
    until(lambda: answers)
    [polled] = publisher._producers.values()
    order = _Order(topic, b"v", None, (), answers.append)
    publisher._delivered(order, polled, False, None, Message(topic=topic, partition=0))
    assert isinstance(answers[1], PublishFailed)
    publisher.close(5)
