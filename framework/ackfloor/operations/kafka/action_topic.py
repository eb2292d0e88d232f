"""The actions topic: planned, created by the first action, and written one record at a time."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.errors import KafkaUnreachable, PublishFailed
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import error_text
from ackfloor.kafka.client.client_options import (
    KafkaOptions,
    admin_config,
    make_client,
    producer_config,
)
from ackfloor.kafka.produce.delivery_reports import failure
from ackfloor.kafka.topics.cluster_topics import REQUEST_S, Cluster
from ackfloor.kafka.topics.permissions import named
from ackfloor.kafka.topics.topic_requirements import DAY_S, Action, TopicPlan
from ackfloor.operations.action_notes import TOPIC

#: Actions are few and small: a year of them is what an auditor asks for.
RETENTION_S: Final = 365 * DAY_S
REPLICAS: Final = 3
WRITE_MS: Final = 10_000
#: How long a connection to a broker may take before an action counts as not noted.
CONNECT_S: Final = 2.0


def action_topic_plan(brokers: int, exists: bool, replication_factor: int | None) -> TopicPlan:
    """The topic as it is to be: one partition, so that actions have one order.

    Args:
        brokers: how many the cluster has.
        exists: whether it is there.
        replication_factor: None for three, or as many as there are brokers.
    """
    replicas = replication_factor or max(1, min(REPLICAS, brokers))
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(round(RETENTION_S * 1000)),
        "retention.bytes": "-1",
        "min.insync.replicas": str(max(1, replicas - 1)),
        # The broker says when: whoever writes can't put a record into another time.
        "message.timestamp.type": "LogAppendTime",
    }
    action = Action.OK if exists else Action.CREATE
    return TopicPlan(TOPIC, "", "", action, 1, replicas, config)


def find_action_topic(options: KafkaOptions, replication_factor: int | None = None) -> TopicPlan:
    """The plan of the topic on this cluster; raises KafkaUnreachable, ConfigError."""
    metadata = AdminConnection(options).metadata()
    return action_topic_plan(len(metadata.brokers), TOPIC in metadata.topics, replication_factor)


def check_action_topic(admin: AdminClient) -> CheckResult:
    """Whether the topic is there, and what this user may do with it; a worker needs neither."""
    check = f"topic {TOPIC}"
    try:
        if TOPIC not in admin.list_topics(timeout=REQUEST_S).topics:
            text = "not there yet, or not for this user to see: the first action creates it"
            return CheckResult(check, "ok", text)
        asked = admin.describe_topics(
            TopicCollection([TOPIC]),
            include_authorized_operations=True,
            request_timeout=REQUEST_S,
        )
        allowed = asked[TOPIC].result(REQUEST_S + 1.0).authorized_operations
    except (KafkaException, TimeoutError) as exc:
        return CheckResult(check, "not tried", error_text(exc))
    may = [each for each in (AclOperation.READ, AclOperation.WRITE) if each in (allowed or ())]
    if allowed is None:
        return CheckResult(check, "ok", "there; this broker does not report a user's permissions")
    what = named(may) if may else "nothing, as a worker's user need not"
    return CheckResult(check, "ok", f"there; this user may {what}")


def write_record(options: KafkaOptions, key: bytes, value: bytes) -> None:
    """Write one record, and create the topic if it is missing; see `ActionLog.write`."""
    _refuse_without_listener(options)
    plan = find_action_topic(options)
    if plan.action is Action.CREATE:
        Cluster(options).create([plan])
    config = {"log_level": 2, **producer_config(options), "delivery.timeout.ms": WRITE_MS}
    producer = make_client(Producer, "producer", config)
    failures = [f"not confirmed within {WRITE_MS // 1000} s"]

    def reported(error: KafkaError | None, message: Message) -> None:
        error = failure(error, message)
        failures[:] = [] if error is None else [error_text(error)]

    try:
        producer.produce(TOPIC, value, key, partition=0, on_delivery=reported)
    except (BufferError, KafkaException) as exc:
        raise PublishFailed(f"{TOPIC}: {error_text(exc)}") from exc
    producer.flush(WRITE_MS / 1000 + 1.0)
    if failures:
        raise PublishFailed(f"{TOPIC}: {failures[0]}")


def _refuse_without_listener(options: KafkaOptions) -> None:
    """Refuse at once where nothing listens; the client would go on trying for ten seconds.

    Raises:
        KafkaUnreachable: none of the bootstrap servers takes a connection.
    """
    servers = str(admin_config(options).get("bootstrap.servers", ""))
    whys = []
    for server in servers.split(","):
        host, _, port = server.rpartition("://")[2].strip().rpartition(":")
        try:
            # The client says what is wrong with what is no address.
            number = int(port)
        except ValueError:
            return
        try:
            connection = socket.create_connection((host.strip("[]"), number), CONNECT_S)
        except OSError as exc:
            whys.append(f"{server}: {exc.strerror or exc}")
        else:
            with suppress(OSError):
                connection.close()
            return
    raise KafkaUnreachable(
        f"no broker takes a connection ({'; '.join(whys)}): set ACKFLOOR_BOOTSTRAP_SERVERS"
    )
