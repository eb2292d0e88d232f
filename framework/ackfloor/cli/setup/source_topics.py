"""Source topics on a broker in the background, for first steps and development.

Nowhere else does ackfloor create source topics: they belong to whoever writes to them.
"""

from __future__ import annotations

from ackfloor.core.parking.topic_names import check_source_topic
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.topics.cluster_topics import Cluster
from ackfloor.kafka.topics.topic_requirements import Action, TopicPlan
from ackfloor.testing.local_kafka.background import BackgroundBroker, BackgroundBrokerRefused


class TopicDiffers(BackgroundBrokerRefused):
    """A topic is there with another number of partitions, which are not added here."""


def create_source_topic(broker: BackgroundBroker, topic: str, partitions: int) -> bool:
    """Create a topic with a replica on each node; returns whether this call created it.

    Raises:
        SettingError: a source topic can't have that name.
        TopicDiffers: it is there with another number of partitions.
        StartError: the broker refuses it.
    """
    check_source_topic(topic)
    cluster = Cluster(KafkaOptions(admin={"bootstrap.servers": broker.bootstrap_servers}))
    plan = TopicPlan(topic, topic, "", Action.CREATE, partitions, broker.nodes, {})
    if cluster.create([plan]):
        return True
    there = cluster.partition_counts([topic]).get(topic, 0)
    if there != partitions:
        raise TopicDiffers(
            f"topic {topic} is there with {there} partitions, not {partitions}: "
            "take another name, or begin anew (ackfloor broker down, then up)"
        )
    return False
