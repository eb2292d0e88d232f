"""The month into a broker: its topics, every record with all headers, and the groups' commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ackfloor import RetryPolicy
from ackfloor.core.acks.gap_set import decode, encode
from ackfloor.core.parking.topic_names import dlq_topic, tier_topic
from benchmarks.failures.month import Committed, Parked
from benchmarks.failures.scenario import CAUSES, PARTITIONS

#: The month's name of a topic -> its name on the broker.
Named = Callable[[str], str]


def create_topics(servers: str, policy: RetryPolicy, named: Named = str) -> None:
    """Sources (empty), tiers and dead-letter topics; those that exist are left alone."""
    jobs = {cause.job for cause in CAUSES}
    names = {job.topic for job in jobs} | {dlq_topic(job.topic, job.group) for job in jobs}
    names |= {tier_topic(job.topic, job.group, s) for job in jobs for s in policy.tiers()}
    names = {named(name) for name in names}
    admin = AdminClient({"bootstrap.servers": servers})
    missing = names - set(admin.list_topics(timeout=10).topics)
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    wanted = [NewTopic(name, PARTITIONS, 1, config=config) for name in sorted(missing)]
    for made in admin.create_topics(wanted).values() if wanted else ():
        made.result()


def produce(servers: str, records: Iterable[Parked]) -> int:
    """Send the records in order; returns how many were confirmed.

    Raises:
        RuntimeError: the broker refused one.
    """
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 100_000,
        }
    )
    refused: list[str] = []

    def reported(error: object, _: object) -> None:
        if error is not None:
            refused.append(str(error))

    count = 0
    for parked in records:
        count += 1
        while True:
            try:
                producer.produce(
                    parked.topic,
                    parked.value,
                    parked.key,
                    parked.partition,
                    on_delivery=reported,
                    timestamp=parked.timestamp_ms,
                    headers=list(parked.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    if refused:
        raise RuntimeError(f"{len(refused)} records were refused, the first: {refused[0]}")
    return count


def commit(servers: str, commits: Iterable[Committed], named: Named = str) -> None:
    """Commit for each group what is settled, as its workers would have; `named` as above."""
    by_group: dict[str, list[TopicPartition]] = {}
    for each in commits:
        gaps = decode(each.metadata, each.topic, each.partition)
        # The real topic has another id than the made-up one: written without.
        topic = named(each.topic)
        text, _ = encode(type(gaps)(gaps.floor, gaps.runs, 0, 0), topic, each.partition)
        position = TopicPartition(topic, each.partition, each.position, metadata=text)
        by_group.setdefault(each.group, []).append(position)
    for group, positions in by_group.items():
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()
