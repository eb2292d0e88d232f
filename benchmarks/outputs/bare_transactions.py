"""The bare client: consume, produce, commit in transactions of 1,000 records, in a loop.

`python -m benchmarks.outputs.bare_transactions VARIANT PART SERVERS SOURCE TARGET RECORDS`, as
`publishing_worker`. It handles nothing, tracks nothing, and starts anew after any error.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer

from benchmarks.peers.work import WARM_UP, rest, tell

BATCH = 1_000
#: Seconds that a transaction waits for its records: as long as it takes where all are there, and
#: at a steady rate no longer than a reader of its outputs should wait.
FULL_S, STEADY_S = 1.0, 0.02


def main() -> None:
    """Work until killed."""
    _, part, servers, source, target, count = sys.argv[1:]
    group = f"outputs-{time.time_ns()}"
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # As ours: with the default of a second the loop waits more than it reads.
            "fetch.queue.backoff.ms": 20,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": group,
            # As ours: with the default of 100 ms the loop waits for the markers of the last one.
            "retry.backoff.ms": 10,
        }
    )
    producer.init_transactions()
    consumer.subscribe([source])
    records, seen, began = int(count), 0, False
    wait_s = FULL_S if part == "throughput" else STEADY_S
    while seen < records:
        messages = consumer.consume(BATCH, wait_s)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
        seen += len(messages)
        if seen >= records // WARM_UP and not began:
            began = True
            tell("began", records=seen)
    tell("ended", records=seen)
    rest()


if __name__ == "__main__":
    main()
