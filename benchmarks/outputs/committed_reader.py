"""A reader of committed records: `python -m benchmarks.outputs.committed_reader SERVERS TOPIC N`.

It tells how long after its production each value's record was there; see `benchmarks.pace`.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.peers.work import WARM_UP, percentiles, rest, tell


def main() -> None:
    """Read so many records."""
    servers, topic, count = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    late_ms: list[float] = []
    while len(late_ms) < int(count):
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        late_ms.append((time.time_ns() - int((message.value() or b"")[:19])) / 1e6)
        if len(late_ms) == int(count) // WARM_UP:
            tell("began", records=len(late_ms))
    tell("ended", records=len(late_ms), **percentiles(late_ms[int(count) // WARM_UP :]))
    rest()


if __name__ == "__main__":
    main()
