"""Rights: what a worker does with each kind of topic, and what of that its user may not do."""

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
    # Who looks at dead letters and replays them uses it; a worker never does.
    "dispositions": (),
}
#: Without these a worker works, and can't compare what it finds with the plan.
DISPENSABLE = frozenset({AclOperation.DESCRIBE_CONFIGS})


def needed(topic: str) -> tuple[AclOperation, ...]:
    """What a worker does with a topic."""
    parsed = parse_topic(topic)
    return NEEDED["source" if parsed is None else parsed.kind]


def missing(topic: str, allowed: Collection[AclOperation]) -> list[AclOperation]:
    """What a worker does with a topic, and its user may not."""
    return [operation for operation in needed(topic) if operation not in allowed]


def named(operations: Collection[AclOperation]) -> str:
    """Operations as they are granted."""
    return ", ".join(operation.name for operation in operations)
