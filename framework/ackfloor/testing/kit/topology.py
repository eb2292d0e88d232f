"""What a worker on the in-memory broker subscribes to, with which handlers and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from ackfloor.core.parking.topic_names import TopicTemplates, check_names
from ackfloor.core.records.retry_policy import RetryPolicy
from ackfloor.core.state.worker_state import Route
from ackfloor.declare.exactly_once import with_transactions
from ackfloor.declare.registration import HandlerSpec
from ackfloor.runtime.loop.worker_assembly import Topology, WorkerConfig
from ackfloor.settings import Settings, sections_of
from ackfloor.testing.memory.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from ackfloor.app import App


def settings_of(app: App, given: Mapping[str, Mapping[str, object]]) -> Settings:
    """An app's settings from code alone; how to reach Kafka does not matter here."""
    in_code = sections_of(app.group, {**app.options, "kafka": {}})
    # Manual time stands still while a schema is fetched, so a long wait delays nothing.
    patient = {"registry": {"wait": "10s"}}
    settings = Settings.from_code(overlaid(overlaid(patient, in_code), given))
    return with_transactions(settings, settings.applied(app.handlers))


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with others on top: `above` wins where both have a key; tables are merged."""
    merged = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            merged[name] = overlaid(below[name], above[name])
    return merged


def create_topics(
    broker: MemoryBroker,
    group: str,
    handlers: Sequence[HandlerSpec],
    partitions: int | Mapping[str, int],
) -> Topology:
    """Create the handlers' topics with their retry and dead-letter topics."""
    templates = TopicTemplates()
    routes: dict[str, Route] = {}
    for spec in handlers:
        tiers = spec.tiers()
        check_names(spec.topics, group, tiers)
        for topic in spec.topics:
            number = partitions_of(topic, partitions)
            routes[topic] = Route(spec.name, topic, quarantines=spec.quarantines)
            for delay_s in tiers:
                routes[templates.tier_topic(topic, group, delay_s)] = Route(
                    spec.name, topic, delay_s, spec.quarantines
                )
            for name in (*routes, templates.dlq_topic(topic, group)):
                if name not in broker.topics:
                    broker.create_topic(name, number)
    return Topology(routes, broker.topics)


def partitions_of(topic: str, partitions: int | Mapping[str, int]) -> int:
    """How many partitions a source topic gets."""
    return partitions if isinstance(partitions, int) else partitions.get(topic, 1)


def on_a_thread(spec: HandlerSpec) -> HandlerSpec:
    """A process handler as one on a thread: manual time can't reach another process."""
    if spec.executor != "process":
        return spec
    return replace(
        spec, executor="thread", process_memory_limit_bytes=None, process_max_records=None
    )


def without_jitter(spec: HandlerSpec) -> HandlerSpec:
    """A handler whose retries wait exactly as long as its policy's schedule says."""
    policy = spec.retry
    if not policy.jitter:
        return spec
    plain = RetryPolicy(
        timedelta(seconds=policy.initial_delay_s),
        policy.multiplier,
        timedelta(seconds=policy.max_delay_s),
        policy.max_redeliveries,
        0,
        delays=[timedelta(seconds=delay_s) for delay_s in policy.delays_s],
    )
    return replace(spec, retry=plain)


def worker_config(settings: Settings, *, worker: str | None = None) -> WorkerConfig:
    """A worker's settings, from code alone."""
    app = settings.app
    return WorkerConfig(
        group=settings.group,
        limits=app.limits,
        commit_interval_s=app.commit_interval_s,
        commit_count=app.commit_count,
        drain_s=app.drain_timeout_s,
        cancel_grace_s=app.cancel_grace_s,
        max_abandoned=app.max_abandoned_threads,
        release=app.release,
        worker=worker,
        spring_headers="spring" in app.foreign_headers,
        kafka_headers="kafka" in app.foreign_headers,
        transactional=app.transactional,
        redaction=settings.redaction.rules(),
        registry=settings.registry,
        encodes_inline=True,
    )


class TurnByTurn:
    """Chooses partitions one after the other, so that every run of a test is the same."""

    def __init__(self) -> None:
        self._count = count()

    def __call__(self, number: int) -> int:
        return next(self._count) % number
