"""The bare client: `consume(500)` in a loop, nothing tracked, nothing committed.

For latency the loop is `poll()`. An idle one polls as the documentation's examples do.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from benchmarks.peers.work import WARM_UP, Work, rest, tell

BATCH = 500


def main() -> None:
    """Read the topic."""
    work = Work()
    consumer = Consumer(
        {
            "bootstrap.servers": work.servers,
            "group.id": work.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # As ours: with the default of a second the loop waits more than it reads.
            "fetch.queue.backoff.ms": 20,
        }
    )
    partitions = consumer.list_topics(work.topic).topics[work.topic].partitions
    consumer.assign([TopicPartition(work.topic, each, 0) for each in partitions])
    if work.body == "noop":
        count(consumer, work)
    elif work.body in {"latency", "idle"}:
        poll(consumer, work)
    else:
        handle(consumer, work)


def count(consumer: Consumer, work: Work) -> None:
    """Read value and offset of each record, and no more."""
    warm_up, began = work.records // WARM_UP, False
    seen = total = 0
    while seen < work.records:
        messages = consumer.consume(BATCH, 1.0)
        for message in messages:
            message.value()
            total += message.offset() or 0
        seen += len(messages)
        if seen >= warm_up and not began:
            began = True
            tell("began", records=seen)
    tell("ended", records=seen)
    rest()


def handle(consumer: Consumer, work: Work) -> None:
    """Call a plain function with each record."""
    function = work.handler()
    while True:
        for message in consumer.consume(BATCH, 1.0):
            function(message.value() or b"")


def poll(consumer: Consumer, work: Work) -> None:
    """Take one record after the other."""
    function = work.handler()
    while True:
        message = consumer.poll(1.0)
        if message is not None:
            function(message.value() or b"")


if __name__ == "__main__":
    main()
