"""The topics of a redrive: found, checked and, for the dispositions, created, before it begins.

Permissions are checked first, not found out half-way: the broker reports what this user may do with
each topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
)

from ackfloor.core.values.setting_error import SettingError
from ackfloor.dead_letters.rules.dispositions import dispositions_topic_of
from ackfloor.dead_letters.rules.record_size import SizeLimits
from ackfloor.dead_letters.rules.redrive_rules import Order, Target, target_topic
from ackfloor.errors import RedriveRefused, StartError
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import KafkaOptions, producer_config, whole_bytes
from ackfloor.kafka.topics.cluster_topics import Cluster
from ackfloor.kafka.topics.topic_ids import printed
from ackfloor.kafka.topics.topic_requirements import Action, TopicPlan

REQUEST_S = 10.0


@dataclass(frozen=True, slots=True)
class RedriveTopics:
    """What a redrive reads and writes.

    Attributes:
        dlq_id: the dead-letter topic's id as Kafka prints it.
        dispositions_partitions: 0 where the topic does not exist yet.
    """

    dlq: str
    dlq_id: str
    dlq_partitions: int
    replicas: int
    target: Target
    dispositions: str
    dispositions_partitions: int

    @classmethod
    def find(cls, options: KafkaOptions, order: Order) -> RedriveTopics:
        """Ask the cluster.

        Raises:
            RedriveRefused: a topic is missing or may not be used; the message says what to do.
            KafkaUnreachable: no broker answers.
        """
        admin, partitions = known_topics(options)
        names = partitions.keys()
        if order.dlq not in names:
            raise RedriveRefused(
                f"the dead-letter topic {order.dlq} does not exist, or this user may not see it"
            )
        try:
            dispositions = dispositions_topic_of(order.dlq)
            target = target_topic(order, names) if order.sends else ""
        except SettingError as exc:
            raise RedriveRefused(f"--{exc}") from exc
        found = described(admin, sorted({order.dlq, target, *({dispositions} & names)} - {""}))
        _may(found[order.dlq], order.dlq, AclOperation.READ)
        if order.sends:
            _may(found[target], target, AclOperation.WRITE)
        if dispositions in found:
            _may(found[dispositions], dispositions, AclOperation.WRITE)
            _may(found[dispositions], dispositions, AclOperation.READ)
        dlq = found[order.dlq]
        return cls(
            order.dlq,
            printed(dlq.topic_id),
            len(dlq.partitions),
            min(len(partition.replicas) for partition in dlq.partitions),
            Target(
                *(target, len(found[target].partitions), order.to),
                size_limits(options, admin, target),
            )
            if order.sends
            else Target(order.to, 0, order.to),
            dispositions,
            len(found[dispositions].partitions) if dispositions in found else 0,
        )

    def refuse_another(self, options: KafkaOptions) -> None:
        """Ask the cluster again whether the dead-letter topic is still the one that was found.

        Raises:
            RedriveRefused: it is gone, or another one has its name.
            KafkaUnreachable: no broker answers.
        """
        admin, _ = known_topics(options)
        if printed(described(admin, [self.dlq])[self.dlq].topic_id) != self.dlq_id:
            raise RedriveRefused(
                f"{self.dlq} was deleted and created anew, and holds other dead letters: select "
                "again"
            )

    def create_dispositions(self, options: KafkaOptions) -> int:
        """Create the dispositions topic if it is missing; returns how many partitions it has.

        Raises:
            RedriveRefused: it does not and can't be created.
        """
        if self.dispositions_partitions:
            return self.dispositions_partitions
        config = {
            "cleanup.policy": "compact",
            "min.insync.replicas": str(max(1, self.replicas - 1)),
        }
        plan = TopicPlan(
            self.dispositions, self.dlq, "", Action.CREATE, self.dlq_partitions, self.replicas,
            config,
        )  # fmt: skip
        try:
            Cluster(options).create([plan])
        except StartError as exc:
            raise RedriveRefused(
                f"{exc}; grant CREATE on it, or create it with cleanup.policy=compact and "
                f"{self.dlq_partitions} partitions"
            ) from exc
        return self.dlq_partitions


def size_limits(options: KafkaOptions, admin: AdminClient, topic: str) -> SizeLimits:
    """How large a record may be that a redrive sends into a topic.

    Without DESCRIBE_CONFIGS on the topic the broker does not say what it allows.

    Raises:
        ConfigError: a client property is refused.
    """
    config = producer_config(options)
    limit = whole_bytes(config, "message.max.bytes")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        (future,) = admin.describe_configs([resource], request_timeout=REQUEST_S).values()
        entry = future.result(REQUEST_S + 1.0).get("max.message.bytes")
        allowed = None if entry is None or entry.value is None else int(entry.value)
    except (KafkaException, TimeoutError, ValueError):
        allowed = None
    return SizeLimits(allowed, limit, str(config["compression.type"]) != "none")


def known_topics(options: KafkaOptions) -> tuple[AdminClient, dict[str, int]]:
    """An admin client, and how many partitions each topic of the cluster has.

    Raises:
        KafkaUnreachable: no broker answers.
        ConfigError: a client property is refused.
    """
    connection = AdminConnection(options)
    topics = connection.metadata().topics
    return connection.admin, {name: len(topic.partitions) for name, topic in topics.items()}


def described(admin: AdminClient, names: Sequence[str]) -> Mapping[str, Any]:
    """The broker's description of these topics, with this user's permissions.

    Raises:
        RedriveRefused: one can't be described.
    """
    futures: Mapping[str, Future[Any]] = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=REQUEST_S,
    )
    found = {}
    for name, future in futures.items():
        try:
            found[name] = future.result(REQUEST_S + 1.0)
        except (KafkaException, TimeoutError) as exc:
            raise RedriveRefused(f"{name} can't be described: {error_text(exc)}") from exc
    return found


def _may(topic: Any, name: str, operation: AclOperation) -> None:
    allowed = topic.authorized_operations
    # None: this broker does not say.
    if allowed is not None and operation not in allowed:
        raise RedriveRefused(f"no permission: grant {operation.name} on topic {name}")
