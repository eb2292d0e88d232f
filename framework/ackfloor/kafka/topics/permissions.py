"""Permissions (ACLs): those that a worker needs on each kind of topic, and those that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from ackfloor.core.parking.topic_names import parse_topic

NEEDED: Mapping[str, tuple[AclOperation, ...]] = {
    "source": (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ),
    "retry": (
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.READ,
        AclOperation.WRITE,
    ),
    "dlq": (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE),
    # Used by the commands that redrive dead letters, never by a worker.
    "dispositions": (),
}
#: On a topic that results of handlers go to.
FOR_RESULTS = (AclOperation.DESCRIBE, AclOperation.WRITE)
#: Without these a worker works, but can't compare topics with the plan.
DISPENSABLE = frozenset({AclOperation.DESCRIBE_CONFIGS})


def needed(topic: str) -> tuple[AclOperation, ...]:
    """The permissions that a worker needs on a topic."""
    parsed = parse_topic(topic)
    return NEEDED["source" if parsed is None else parsed.kind]


def missing(topic: str, allowed: Collection[AclOperation]) -> list[AclOperation]:
    """The needed permissions that the user lacks."""
    return [operation for operation in needed(topic) if operation not in allowed]


def named(operations: Collection[AclOperation]) -> str:
    """The names of operations, as they are granted."""
    return ", ".join(operation.name for operation in operations)
