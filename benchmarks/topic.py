"""The topics the cases read: made once, filled once, as long as their broker lives."""

from __future__ import annotations

import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import track

PARTITIONS = 8
KEYS = 10_000
#: A few keys that everything belongs to.
HOT_KEYS = 10
_VALUE = b'{"order": %d, "customer": "c%d", "cents": 1200, "note": "%s"}'


def filled(servers: str, records: int, keys: int = KEYS) -> str:
    """The topic of so many records, about 200 bytes each; made and filled unless it is there.

    A key's records are in one partition, in the order of their numbers.
    """
    topic = f"bench-{records}-{keys}"
    if not make(servers, topic):
        return topic
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
    numbers = track(range(records), f"filling {topic}", disable=not sys.stderr.isatty())
    for n in numbers:
        key = n % keys
        value = _VALUE % (n, key, note)
        while True:
            try:
                producer.produce(topic, value, key=b"c%d" % key, partition=key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return topic


def make(servers: str, topic: str, partitions: int = PARTITIONS) -> bool:
    """Create a topic; False if it is there already."""
    admin = AdminClient({"bootstrap.servers": servers})
    if topic in admin.list_topics(timeout=10).topics:
        return False
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return True
