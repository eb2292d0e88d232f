"""The doctor's checks of topics: compares the plan of `topic_requirements` with the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ackfloor.core.values.doctor_result import CheckResult
from ackfloor.declare.registration import HandlerSpec
from ackfloor.kafka.topics.topic_requirements import (
    Action,
    TopicFacts,
    TopicPlan,
    handlers_text,
    how_to_create,
    plan_topics,
    required_topics,
)


def check_topics(
    specs: Sequence[HandlerSpec],
    group: str,
    existing: Mapping[str, TopicFacts],
    *,
    brokers: int,
    replication_factor: int | None,
    dlq_retention_s: float,
    create_topics: bool,
) -> Iterator[CheckResult]:
    """Check each source topic, and each retry and dead-letter topic that the handlers need.

    Args:
        specs: the handlers, settings applied.
        existing: the cluster's source topics, those of results, and the framework's own.
        brokers: how many there are.
        replication_factor, dlq_retention_s: as for `plan_topics`.
        create_topics: whether a worker creates what is missing.

    Raises:
        ConfigError: a name can't be used.
    """
    publishers: dict[str, list[str]] = {}
    for spec in specs:
        if spec.to is not None:
            publishers.setdefault(spec.to.topic, []).append(spec.name)
    for spec in specs:
        for topic in spec.topics:
            yield _source(spec, topic, existing.get(topic), brokers)
        if spec.to is not None and (names := publishers.pop(spec.to.topic, None)):
            yield _result(names, spec.to.topic, existing.get(spec.to.topic))
        plans = (
            plan_topics(
                [spec], group, existing, replication_factor=replication_factor,
                dlq_retention_s=dlq_retention_s,
            )
            if all(topic in existing for _, topic in required_topics(spec))
            else ()
        )  # fmt: skip
        for plan in plans:
            yield _ours(plan, existing.get(plan.topic), create_topics)


def _source(spec: HandlerSpec, topic: str, found: TopicFacts | None, brokers: int) -> CheckResult:
    check = f"topic {topic}"
    if found is None:
        text = f"handler {spec.name} reads it, and it does not exist, or this user may not see it"
        return CheckResult(check, "fail", text, how_to_create(topic))
    if found.replication_factor == 1 and brokers > 1:
        text = f"1 replica on a cluster of {brokers}: if a broker is lost, so are its records"
        return CheckResult(check, "warn", text, "give it more replicas")
    partitions, replicas = found.partitions, found.replication_factor
    return CheckResult(check, "ok", f"partitions: {partitions}, replicas: {replicas}")


def _result(names: Sequence[str], topic: str, found: TopicFacts | None) -> CheckResult:
    check = f"results to {topic}"
    if found is None:
        do = "publishes" if len(names) == 1 else "publish"
        who = f"{handlers_text(names)} {do} to it"
        text = f"{who}; it does not exist, or this user may not see it"
        return CheckResult(check, "fail", text, how_to_create(topic))
    return CheckResult(check, "ok", f"from {handlers_text(names)}, partitions: {found.partitions}")


def _ours(plan: TopicPlan, found: TopicFacts | None, create_topics: bool) -> CheckResult:
    check = f"topic {plan.topic}"
    if plan.action is Action.CREATE and create_topics:
        return CheckResult(check, "ok", "not there yet: a worker creates it when it starts")
    if plan.action is Action.CREATE:
        text = "not there, and app.create_topics is false"
        return CheckResult(check, "fail", text, "ackfloor topics apply MODULE:APP")
    if plan.action is Action.LEFTOVER:
        return CheckResult(check, "ok", "; ".join(plan.notes))
    assert found is not None
    if plan.action is Action.OK:
        text = f"partitions: {found.partitions}, replicas: {found.replication_factor}"
        if not found.config:
            return CheckResult(check, "ok", f"{text}; its settings can't be read")
        return CheckResult(check, "ok", f"{text}, as planned")
    in_sync = int(found.config.get("min.insync.replicas", "1"))
    stuck = in_sync > found.replication_factor
    fix = "ackfloor topics plan MODULE:APP shows the plan; kafka-configs changes a topic"
    return CheckResult(check, "fail" if stuck else "warn", "; ".join(plan.notes), fix)
