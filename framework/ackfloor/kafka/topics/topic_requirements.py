"""Topic requirements: the plan of retry and dead-letter topics, made without a client.

A tier gets its source's partition count and replication, `cleanup.policy=delete`, retention of
at least twice the whole schedule (a record that waits must not expire first), room for a record
of the source's largest size plus our headers, and enough in-sync replicas that a confirmed park
survives a broker. Nothing is ever deleted here, and source topics are never created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from ackfloor.core.parking.topic_names import check_names, dlq_topic, parse_topic, tier_topic
from ackfloor.core.values.durations import format_duration
from ackfloor.declare.registration import HandlerSpec
from ackfloor.errors import TopicsMissing

HEADER_ROOM = 64 * 1024
DAY_S = 86_400.0
#: Tiers keep records at least this long, whatever the schedule.
SHORTEST_RETENTION_S = 7 * DAY_S


class Action(StrEnum):
    """What to do about a topic."""

    CREATE = "create"
    OK = "ok"
    DRIFT = "drift"
    LEFTOVER = "leftover"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the cluster has it."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One retry or dead-letter topic, and what to do about it.

    Attributes:
        config: the topic's settings when it is created.
        notes: the differences from the plan, each with its consequence.
    """

    topic: str
    source: str
    handler: str
    action: Action
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    notes: tuple[str, ...] = ()


def plan_topics(
    specs: Sequence[HandlerSpec],
    group: str,
    existing: Mapping[str, TopicFacts],
    *,
    replication_factor: int | None,
    dlq_retention_s: float,
) -> tuple[TopicPlan, ...]:
    """Plan every tier and dead-letter topic of a group.

    Args:
        specs: the handlers, settings applied.
        existing: the cluster's source topics, those of results, and the framework's own.
        replication_factor: of created topics; None for the source's own.
        dlq_retention_s: how long dead letters are kept, in seconds.

    Raises:
        TopicsMissing: source topics, or those of results, do not exist; all are named.
        ConfigError: a name can't be used.
    """
    plans: list[TopicPlan] = []
    for spec in specs:
        check_names(spec.topics, group, spec.tiers())
    _check_existing(specs, existing)
    for spec in specs:
        for topic in spec.topics:
            source = existing[topic]
            plans += _of_source(
                spec, topic, source, group, existing, replication_factor, dlq_retention_s
            )
    return tuple(plans)


def required_topics(spec: HandlerSpec) -> list[tuple[str, str]]:
    """The topics that a handler does not work without, and that nobody creates for it.

    Each behind the option that names it.
    """
    results = [] if spec.to is None else [("to", spec.to.topic)]
    return [*(("topics", topic) for topic in spec.topics), *results]


def result_topics(specs: Sequence[HandlerSpec]) -> set[str]:
    """The topics that the results of handlers go to."""
    return {spec.to.topic for spec in specs if spec.to is not None}


def _check_existing(specs: Sequence[HandlerSpec], existing: Mapping[str, TopicFacts]) -> None:
    """Refuse topics that do not exist; raises TopicsMissing, which names all of them."""
    missing: dict[str, list[tuple[str, str]]] = {}
    for spec in specs:
        for option, topic in required_topics(spec):
            if topic not in existing:
                missing.setdefault(topic, []).append((spec.name, option))
    if not missing:
        return
    (topic, ((handler, option), *also)), *others = missing.items()
    too = f", also of {handlers_text(name for name, _ in also)}," if also else ""
    more = "".join(
        f", nor does {name!r} of {handlers_text(name for name, _ in uses)}" for name, uses in others
    )
    kinds = {"topics": "source topics", "to": "topics of results"}
    found = {option for uses in missing.values() for _, option in uses}
    what = " and ".join(kind for key, kind in kinds.items() if key in found)
    raise TopicsMissing(
        f"handlers.{handler}.{option}",
        topic,
        f"the topic{too} does not exist (or this user may not see it){more}, and {what} "
        "are never created",
        how_to_create(None if others else topic),
    )


def handlers_text(names: Iterable[str]) -> str:
    """One handler or more, each named once: several may publish to one topic."""
    *others, last = dict.fromkeys(names)
    return f"handlers {', '.join(others)} and {last}" if others else f"handler {last}"


def how_to_create(topic: str | None) -> str:
    """The fix for a topic that does not exist, with the command for brokers of `broker up`.

    Args:
        topic: its name; None for several.
    """
    if topic is None:
        return "create them (on a local Kafka `ackfloor broker topic` does), or correct the names"
    return f"create it (on a local Kafka `ackfloor broker topic {topic}` does), or correct the name"


def _of_source(
    spec: HandlerSpec,
    topic: str,
    source: TopicFacts,
    group: str,
    existing: Mapping[str, TopicFacts],
    replication_factor: int | None,
    dlq_retention_s: float,
) -> list[TopicPlan]:
    replicas = replication_factor or source.replication_factor
    retentions = {
        tier_topic(topic, group, delay_s): _tier_retention_s(spec) for delay_s in spec.tiers()
    }
    retentions[dlq_topic(topic, group)] = dlq_retention_s
    plans = []
    for name, retention_s in retentions.items():
        config = _config(source, replicas, retention_s)
        found = existing.get(name)
        notes = () if found is None else _drift(found, source, config)
        action = Action.CREATE if found is None else Action.DRIFT if notes else Action.OK
        partitions = source.partitions if found is None else found.partitions
        plans.append(TopicPlan(name, topic, spec.name, action, partitions, replicas, config, notes))
    for name, found in existing.items():
        parsed = parse_topic(name)
        if (
            parsed is not None
            and (parsed.topic, parsed.group, parsed.kind) == (topic, group, "retry")
            and name not in retentions
        ):
            note = "no longer in the policy; its records are still consumed"
            plans.append(
                TopicPlan(
                    name, topic, spec.name, Action.LEFTOVER, found.partitions,
                    found.replication_factor, found.config, (note,),
                )
            )  # fmt: skip
    return plans


def _tier_retention_s(spec: HandlerSpec) -> float:
    total_s = spec.retry.total_s()
    if total_s == inf:
        total_s = sum(spec.retry.schedule())
    return max(SHORTEST_RETENTION_S, 2 * total_s * (1 + spec.retry.jitter))


def _config(source: TopicFacts, replicas: int, retention_s: float) -> dict[str, str]:
    largest = int(source.config.get("max.message.bytes", 1_048_588))
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(round(retention_s * 1000)),
        "retention.bytes": "-1",
        "max.message.bytes": str(largest + HEADER_ROOM),
        "min.insync.replicas": str(max(1, replicas - 1)),
    }


def _drift(found: TopicFacts, source: TopicFacts, config: Mapping[str, str]) -> tuple[str, ...]:
    """Where an existing topic is weaker than planned."""
    have = found.config
    notes = []
    if found.partitions < source.partitions:
        notes.append(f"{found.partitions} partitions, the source has {source.partitions}")
    if not have:
        # They could not be read: nothing is known to be weaker.
        return tuple(notes)
    policy = have.get("cleanup.policy", "delete")
    if policy != "delete":
        notes.append(f"cleanup.policy={policy} can remove waiting records; set it to delete")
    retention_ms = int(have.get("retention.ms", "-1"))
    wanted_ms = int(config["retention.ms"])
    if 0 <= retention_ms < wanted_ms:
        kept, wanted = format_duration(retention_ms / 1000), format_duration(wanted_ms / 1000)
        notes.append(f"retention.ms keeps {kept}, the plan wants {wanted}")
    if int(have.get("max.message.bytes", "0")) < int(config["max.message.bytes"]):
        notes.append(
            f"max.message.bytes={have.get('max.message.bytes')} may refuse large records; "
            f"set {config['max.message.bytes']}"
        )
    return (*notes, *_durability(found, config))


def _durability(found: TopicFacts, config: Mapping[str, str]) -> list[str]:
    """Where a confirmed park could be lost, or none could be confirmed."""
    have, notes = found.config, []
    if int(have.get("retention.bytes", "-1")) >= 0:
        notes.append(
            f"retention.bytes={have['retention.bytes']} can remove waiting records; set it to -1"
        )
    in_sync = int(have.get("min.insync.replicas", config["min.insync.replicas"]))
    if in_sync > found.replication_factor:
        notes.append(
            f"min.insync.replicas={in_sync} with {found.replication_factor} replicas: nothing can "
            "be parked; lower it"
        )
    elif in_sync < int(config["min.insync.replicas"]):
        notes.append(
            f"min.insync.replicas={in_sync}: a confirmed park can be lost with one broker; "
            f"set {config['min.insync.replicas']}"
        )
    return notes
