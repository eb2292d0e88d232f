"""One dead letter, read from Kafka when somebody opens it: its payload is kept nowhere else."""

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
    parsed = parse_topic(topic)
    if parsed is None or parsed.kind != "dlq":
        # Whoever may see dead letters may not see every topic that the console's user can read.
        raise RedriveRefused(f"{topic} is no dead-letter topic of ackfloor")
    return ParkedTopics(options).record(topic, partition, offset)
