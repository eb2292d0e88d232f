"""Topics on the cluster: wait for a broker, describe, plan, create."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    NewTopic,
)

from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.state.worker_state import Route
from ackfloor.declare.registration import HandlerSpec
from ackfloor.errors import StartError, TopicsMissing
from ackfloor.kafka.client.admin_client import AdminConnection
from ackfloor.kafka.client.client_errors import DENIED, error_text, kafka_error
from ackfloor.kafka.client.client_options import KafkaOptions
from ackfloor.kafka.topics.topic_requirements import (
    Action,
    TopicFacts,
    TopicPlan,
    plan_topics,
    result_topics,
)

log = logging.getLogger("ackfloor.kafka")

REQUEST_S = 10.0
PROBE_S = 2.0
SAY_EVERY_S = 5.0


class Cluster:
    """The cluster's topics through an admin client.

    Raises:
        ConfigError: a client property is refused.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._connection = AdminConnection(options)
        self._admin = self._connection.admin

    def wait(
        self,
        timeout_s: float | None,
        stopping: Callable[[], bool] = lambda: False,
        waits: Callable[[str], None] = lambda _why: None,
    ) -> None:
        """Wait until a broker answers; log the cause every few seconds and pass each to `waits`.

        Raises:
            KafkaUnreachable: none did within `timeout_s` seconds (None: wait for ever), or
                before `stopping` returned True.
        """
        started_s = time.monotonic()
        say_at_s, last_why = started_s, ""
        while True:
            try:
                self._admin.list_topics(timeout=PROBE_S)
            except KafkaException as exc:
                why = self._connection.why(exc)
                waited_s = time.monotonic() - started_s
                if why != last_why:
                    last_why = why
                    waits(why)
                if stopping() or (timeout_s is not None and waited_s >= timeout_s):
                    waited_s = round(waited_s) if timeout_s is None else timeout_s
                    raise self._connection.unreachable(exc, waited_s) from None
                if time.monotonic() >= say_at_s:
                    say_at_s = time.monotonic() + SAY_EVERY_S
                    log.warning("waiting for Kafka at %s: %s", self._connection.servers, why)
                time.sleep(0.2)
            else:
                if last_why:
                    waits("")
                return

    def names(self) -> frozenset[str]:
        """The topics that exist, as far as this user may see them; raises KafkaUnreachable."""
        topics = self._connection.metadata().topics
        return frozenset(name for name, topic in topics.items() if topic.error is None)

    def facts(
        self, sources: Iterable[str], group: str, results: Iterable[str] = ()
    ) -> dict[str, TopicFacts]:
        """The source topics and their retry and dead-letter topics, as the cluster has them.

        Also those that results go to, without their settings, which nobody needs.
        """
        wanted = set(sources)
        metadata = self._connection.metadata()
        names = []
        others = {name for name in results if name not in wanted and name in metadata.topics}
        for name, topic in metadata.topics.items():
            parsed = parse_topic(name)
            ours = parsed is not None and parsed.group == group and parsed.topic in wanted
            if topic.error is None and (name in wanted or ours):
                names.append(name)
        configs = self._configs(names)
        return {
            name: TopicFacts(
                len(metadata.topics[name].partitions),
                min(len(p.replicas) for p in metadata.topics[name].partitions.values()),
                configs.get(name, {}),
            )
            for name in (*names, *(name for name in others if not metadata.topics[name].error))
        }

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions these topics have; without those that the cluster does not know."""
        found = self._connection.metadata().topics
        return {
            topic: len(found[topic].partitions)
            for topic in topics
            if topic in found and found[topic].error is None
        }

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for resource, future in self._admin.describe_configs(
            resources, request_timeout=REQUEST_S
        ).items():
            try:
                entries = future.result()
            except KafkaException as exc:
                # Without DESCRIBE_CONFIGS there is nothing to compare with.
                log.warning(
                    "settings of topic %s can't be read: %s", resource.name, error_text(exc)
                )
                entries = {}
            found[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return found

    def plan(
        self,
        specs: Sequence[HandlerSpec],
        group: str,
        *,
        replication_factor: int | None,
        dlq_retention_s: float,
    ) -> tuple[TopicPlan, ...]:
        """Plan the group's topics; raises ConfigError where one is missing that is not created."""
        sources = [topic for spec in specs for topic in spec.topics]
        return plan_topics(
            specs,
            group,
            self.facts(sources, group, result_topics(specs)),
            replication_factor=replication_factor,
            dlq_retention_s=dlq_retention_s,
        )

    def create(self, plans: Iterable[TopicPlan]) -> list[str]:
        """Create what the plan says is missing; returns the names created.

        Raises:
            StartError: a topic could not be created; the message says which and why.
        """
        missing = [plan for plan in plans if plan.action is Action.CREATE]
        if not missing:
            return []
        new = [
            NewTopic(p.topic, p.partitions, p.replication_factor, config=dict(p.config))
            for p in missing
        ]
        futures: Mapping[str, Future[None]] = self._admin.create_topics(
            new, request_timeout=REQUEST_S
        )
        created = []
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as exc:
                error = kafka_error(exc)
                if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                denied = error is not None and error.code() in DENIED
                fix = f"; grant CREATE on topic {name}" if denied else ""
                raise StartError(
                    f"topic {name} could not be created: {error_text(exc)}{fix}"
                ) from exc
            created.append(name)
        self._await_topics([plan.topic for plan in missing])
        return created

    def _await_topics(self, names: Sequence[str]) -> None:
        """A created topic is usable once every broker's metadata shows its leaders."""
        until_s = time.monotonic() + REQUEST_S
        while time.monotonic() < until_s:
            topics = self._connection.metadata().topics
            if all(
                name in topics and all(p.leader >= 0 for p in topics[name].partitions.values())
                for name in names
            ):
                return
            time.sleep(0.05)

    def close(self) -> None:
        """Drop the client."""
        del self._admin, self._connection


def check_complete(plans: Iterable[TopicPlan]) -> None:
    """Refuse to start while topics are missing and creation is off.

    Raises:
        TopicsMissing: names the topics and the command that makes them.
    """
    missing = [plan.topic for plan in plans if plan.action is Action.CREATE]
    if missing:
        raise TopicsMissing(
            "app.create_topics",
            False,
            f"these topics are missing: {', '.join(missing)}",
            "run `ackfloor topics apply MODULE:APP`, or set create_topics=true",
        )


def routes_of(plans: Iterable[TopicPlan], specs: Iterable[HandlerSpec]) -> dict[str, Route]:
    """The route of each topic that is read: sources and all tiers, including leftover ones."""
    routes = {
        topic: Route(spec.name, topic, quarantines=spec.quarantines)
        for spec in specs
        for topic in spec.topics
    }
    for plan in plans:
        parsed = parse_topic(plan.topic)
        if parsed is not None and parsed.kind == "retry":
            quarantines = plan.source in routes and routes[plan.source].quarantines
            routes[plan.topic] = Route(plan.handler, plan.source, parsed.delay_s, quarantines)
    return routes
