"""The topic every case reads: made once, filled once."""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import track

PARTITIONS = 8
KEYS = 10_000
_VALUE = b'{"order": %d, "customer": "c%d", "cents": 1200, "note": "%s"}'


def ensure(servers: str, topic: str, records: int) -> None:
    """Create and fill the topic unless it is there already.

    Args:
        servers: bootstrap servers.
        topic: its name.
        records: how many records it holds; about 200 bytes each.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    if topic in admin.list_topics(timeout=10).topics:
        return
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    note = b"x" * 130
    numbers = track(range(records), "producing", disable=not sys.stderr.isatty(), update_period=0.5)
    for n in numbers:
        key = n % KEYS
        while True:
            try:
                producer.produce(
                    topic,
                    _VALUE % (n, key, note),
                    key=b"c%d" % key,
                    partition=n % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def starts(topic: str) -> list[TopicPartition]:
    """Every partition from its first record."""
    return [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def unique(prefix: str) -> str:
    """A group nobody has used."""
    return f"{prefix}-{time.time_ns()}"
