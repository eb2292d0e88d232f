"""One record, read from Kafka when it is opened, and kept nowhere."""

from __future__ import annotations

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.dead_letters.kafka.parked_topics import ParkedTopics
from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
from ackfloor.errors import RedriveRefused
from ackfloor.kafka.client.client_options import KafkaOptions


def one_dead_letter(options: KafkaOptions, topic: str, partition: int, offset: int) -> DeadLetter:
    """The dead letter at a place.

    Raises:
        RedriveRefused: the topic is no dead-letter topic of ours, or nothing is there.
        KafkaUnreachable: the broker says nothing.
        ConfigError: a client property is refused.
    """
    return _parked(options, "dlq", topic, partition, offset)


def one_waiting_record(
    options: KafkaOptions, topic: str, partition: int, offset: int
) -> DeadLetter:
    """The record at a place of a retry topic, whether it still waits or not.

    Raises:
        RedriveRefused, KafkaUnreachable, ConfigError: as `one_dead_letter` does.
    """
    return _parked(options, "retry", topic, partition, offset)


def one_source_record(options: KafkaOptions, topic: str, partition: int, offset: int) -> DeadLetter:
    """The record at a place of a source topic; it has not failed, whatever it is called here.

    Raises:
        RedriveRefused: nothing is there, or it may not be read.
        KafkaUnreachable, ConfigError: as `one_dead_letter` does.
    """
    return ParkedTopics(options).record(topic, partition, offset)


def _parked(
    options: KafkaOptions, kind: str, topic: str, partition: int, offset: int
) -> DeadLetter:
    parsed = parse_topic(topic)
    if parsed is None or parsed.kind != kind:
        # Whoever may see dead letters may not see every topic that the console's user can read.
        what = "dead-letter" if kind == "dlq" else kind
        raise RedriveRefused(f"{topic} is no {what} topic of ackfloor")
    return ParkedTopics(options).record(topic, partition, offset)
