"""Writes records at a steady rate: `python -m benchmarks.pace SERVERS TOPIC RATE COUNT DELAY_S`.

Each value begins with the nanoseconds since the epoch at which it was handed to the client.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer

PADDING = b" " * 180
#: Above this rate records are written in batches of 2 ms, below it one by one.
SINGLY = 5_000


def main() -> None:
    """Write them all."""
    servers, topic = sys.argv[1:3]
    rate, count, delay_s = float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 0 if rate <= SINGLY else 2,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic)
    time.sleep(delay_s)
    began_s, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began_s) * rate) + 1)
        for _ in range(due - sent):
            producer.produce(topic, b"%d" % time.time_ns() + PADDING)
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, min(began_s + sent / rate - time.monotonic(), 1 / rate)))
    producer.flush(30)


if __name__ == "__main__":
    main()
