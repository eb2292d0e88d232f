"""What a group has settled: its commits, as any onlooker may read them.

Through a consumer that never joins the group. Never through the admin client: where the
coordinator is just moving, the answer to its question crashes the process (librdkafka 2.16.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackfloor.core.model import StartPosition
from ackfloor.core.settled import Settled, settled_by
from ackfloor.errors import KafkaUnreachable
from ackfloor.kafka.coordinator import coordinated
from ackfloor.kafka.errors import told
from ackfloor.kafka.options import KafkaOptions, consumer_config, make_client
from ackfloor.kafka.topic_ids import TopicIds, printed

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 15.0


def settled(options: KafkaOptions, group: str, topics: Iterable[str]) -> list[Settled]:
    """The partitions of these topics for which the group has a commit.

    Of metadata that can't be believed nothing counts: what it lists is then taken for open.

    Raises:
        KafkaUnreachable: there is no answer.
        ConfigError: a client property is refused.
    """
    consumer = make_client(
        Consumer, "consumer", {"log_level": 2, **consumer_config(options, group)}
    )
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
        raise KafkaUnreachable(f"commits of group {group!r} can't be read: {told(exc)}") from exc
    finally:
        ids.close()
        consumer.close()


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
