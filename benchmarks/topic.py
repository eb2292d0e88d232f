"""The topics the cases read: made once, filled once, as long as their broker lives."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.progress import track

PARTITIONS = 8
KEYS = 10_000
_VALUE = b'{"order": %d, "customer": "c%d", "cents": 1200, "note": "%s"}'


@dataclass(frozen=True, slots=True)
class Contents:
    """What a topic of the cases holds.

    Attributes:
        records: how many.
        keys: of how many keys.
        zipf: whether the n-th key has an n-th of the records of the first, as in Zipf's law.
            Otherwise all keys have as many, and take turns.
    """

    records: int
    keys: int = KEYS
    zipf: bool = False

    def chosen_keys(self) -> Iterable[int]:
        """The key of each record, the same ones each time."""
        if not self.zipf:
            return (n % self.keys for n in range(self.records))
        weights = list(accumulate(1 / (n + 1) for n in range(self.keys)))
        return random.Random(1).choices(range(self.keys), cum_weights=weights, k=self.records)


def filled(servers: str, contents: Contents) -> str:
    """The topic with these records, about 200 bytes each; made and filled unless it is there.

    A key's records are in one partition, in the order of their numbers.
    """
    topic = f"bench-{contents.records}-{contents.keys}{'-zipf' if contents.zipf else ''}"
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
    keys = track(
        contents.chosen_keys(),
        f"filling {topic}",
        total=contents.records,
        disable=not sys.stderr.isatty(),
    )
    for n, key in enumerate(keys):
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
