"""Group commits: what a group has settled, read from its commits without joining it.

A consumer that never joins the group reads them. Never ask through the admin client: while the
coordinator is moving, the answer crashes the process (librdkafka 2.16.1). A consumer without the
permission fails only at its time limit and without the reason; then the group's coordinator is
asked for the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ackfloor.core.acks.settled import Settled, settled_by
from ackfloor.core.records.record import StartPosition
from ackfloor.errors import AckfloorError, KafkaUnreachable
from ackfloor.kafka.client.client_errors import DENIED, error_text, kafka_error, look_failed
from ackfloor.kafka.client.client_options import (
    KafkaOptions,
    admin_config,
    make_client,
    quiet_consumer,
)
from ackfloor.kafka.groups.coordinator import coordinated
from ackfloor.kafka.topics.topic_ids import TopicIds, printed

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 15.0


def settled(options: KafkaOptions, group: str, topics: Iterable[str]) -> list[Settled]:
    """The partitions of these topics for which the group has a commit.

    Invalid metadata counts as none: the records that it lists as settled are then open.

    Raises:
        AckfloorError: this user may not describe the group.
        KafkaUnreachable: there is no answer.
        ConfigError: a client property is refused.
    """
    consumer = quiet_consumer(options, group)
    ids = TopicIds(options)
    try:
        known = consumer.list_topics(timeout=REQUEST_S).topics
        there = sorted(set(topics) & known.keys())
        places = [TopicPartition(name, part) for name in there for part in known[name].partitions]
        if not places:
            return []
        described = ids.learn(there)
        found = coordinated(lambda: consumer.committed(places, timeout=REQUEST_S), REQUEST_S)
        commits = [commit for commit in found if commit.offset >= 0]
        return [_settled(commit, described[commit.topic].topic_id) for commit in commits]
    except KafkaException as exc:
        text = f"commits of group {group!r} can't be read: {error_text(exc)}"
        raise _denied(options, group) or KafkaUnreachable(text) from exc
    finally:
        ids.close()
        consumer.close()


def _denied(options: KafkaOptions, group: str) -> AckfloorError | None:
    """The error for a missing permission; None if none is missing."""
    admin = make_client(AdminClient, "admin", {"log_level": 2, **admin_config(options)})
    futures = admin.describe_consumer_groups([group], request_timeout=REQUEST_S)
    try:
        futures[group].result(REQUEST_S + 1.0)
    except (KafkaException, TimeoutError) as exc:
        error = kafka_error(exc)
        if error is not None and error.code() in DENIED:
            return look_failed(f"grant DESCRIBE on group {group}", exc)
    return None


def _settled(commit: TopicPartition, topic_id: str) -> Settled:
    found = settled_by(
        StartPosition(
            commit.topic,
            commit.partition,
            commit.offset,
            metadata=commit.metadata or "",
            topic_id=topic_id,
        )
    )
    if found.refused:
        log.warning("%s/%s: %s", commit.topic, commit.partition, found.refused)
    return found._replace(topic_id=printed(topic_id))
