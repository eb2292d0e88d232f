"""Launch: an app with its settings, ready to be run on Kafka.

The composition root: the one place that knows the app, the settings and the Kafka clients. The
supervisor's command uses it to check everything before a worker starts; each worker uses it to
create its parts.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from ackfloor.app import App
from ackfloor.core.values.durations import parse_duration
from ackfloor.declare.broadcast_mode import check_settings
from ackfloor.declare.codec import make_decoder
from ackfloor.declare.exactly_once import with_transactions
from ackfloor.declare.flood_guard import FIX, WHY
from ackfloor.declare.registration import HandlerSpec
from ackfloor.declare.signature import read_signature, result_hint
from ackfloor.declare.topic_patterns import Matches, listed, match
from ackfloor.errors import ConfigError, TopicsMissing
from ackfloor.ports import MonitoringPlugin, RunMonitor
from ackfloor.runtime.executors.event_loop import EventLoop
from ackfloor.runtime.executors.process.start_arguments import plan_of
from ackfloor.runtime.loop.clock import SystemClock
from ackfloor.runtime.loop.worker_assembly import Outside, Topology, WorkerConfig
from ackfloor.runtime.reporting.lag_watch import LagWatch, Looking
from ackfloor.settings import Settings, sections_of
from ackfloor.settings.layers import Layer

if TYPE_CHECKING:
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.kafka.consume.new_matches import NewMatches
    from ackfloor.kafka.topics.cluster_topics import Cluster
    from ackfloor.kafka.topics.matched_topics import MatchedTopics
    from ackfloor.kafka.topics.topic_requirements import TopicPlan

log = logging.getLogger("ackfloor")

#: How long a worker repeats the request for topics that its run has found or created, in seconds.
TOPICS_S = 10.0
TOPICS_PAUSE_S = 0.2


def _warn_of_dropped_results(spec: HandlerSpec) -> None:
    """Say that what a handler returns goes nowhere; of a batch that is an error of each call."""
    hint = result_hint(spec.function)
    if not hint or spec.to is not None or spec.batch is not None:
        return
    may_publish = spec.ack == "auto" and spec.executor != "process"
    log.warning(
        "handlers.%s: it returns %s, which is published nowhere: %sreturn nothing (-> None)",
        spec.name,
        hint,
        'name its topic with to="...", or ' if may_publish else "",
    )


def _ignore(_why: str) -> None:
    """Take the cause of a wait, and do nothing with it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """An app with its settings and handlers.

    Attributes:
        handlers: the app's handlers, or those of `--only`, with operators' settings applied.
        matches: what their patterns stand for; nothing before they were looked up.
    """

    app: App
    settings: Settings
    handlers: tuple[HandlerSpec, ...]
    matches: Matches = field(default_factory=Matches)

    @classmethod
    def of(
        cls,
        app: App,
        *,
        flags: Mapping[str, object],
        config: Path | str | None = None,
        only: Sequence[str] = (),
        file: Layer | None = None,
        above: Layer | None = None,
    ) -> Launch:
        """Load the settings around an app; see `Settings.load`.

        Raises:
            ConfigError: a setting is refused, or `--only` names no handler.
        """
        settings = Settings.load(
            sections_of(app.group, app.options), flags=flags, config=config, file=file, above=above
        )
        handlers = settings.applied(app.handlers)
        settings = with_transactions(settings, handlers)
        if app.broadcast:
            check_settings(settings, handlers)
        if not handlers:
            raise ConfigError(
                "app", app.group, "it has no handlers", 'register one: @app.handler("topic")'
            )
        known = [spec.name for spec in handlers]
        for name in only:
            if name not in known:
                raise ConfigError(
                    "--only", name, "no such handler", f"handlers are {', '.join(known)}"
                )
        if only:
            handlers = tuple(spec for spec in handlers if spec.name in only)
        return cls(app, settings, handlers)

    def check_handlers(self) -> None:
        """Refuse handlers that could not be called; raises ConfigError."""
        for spec in self.handlers:
            if "guard" in spec.given:
                # Python hides the registration's DeprecationWarning outside of tests.
                log.warning("handlers.%s.guard: %s: %s", spec.name, WHY, FIX)
            signature = read_signature(
                spec.function,
                handler=spec.name,
                state_type=self.app.state_type,
                batch=spec.batch is not None,
                results=spec.to is not None,
            )
            make_decoder(
                signature.value_type,
                signature.accepts_null,
                decoder=spec.decoder,
                field=f"handlers.{spec.name}.{signature.value_param or 'value'}",
            )
            _warn_of_dropped_results(spec)
            self.app.check_middleware(spec)
            if spec.executor == "process":
                plan_of(self.app, spec, signature)

    def prepare_topics(
        self,
        connect_timeout: timedelta | str | None = None,
        waits: Callable[[str], None] = _ignore,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait for Kafka, create missing topics, and log the differences of existing ones.

        Args:
            connect_timeout: how long to wait for a broker, such as "30s"; None for ever.
            waits: gets the reason why there is no answer yet, and "" once there is one.
            stopping: whether to give up now.

        Raises:
            KafkaUnreachable: no broker answered in time, or before `stopping` returned True.
            ConfigError: a topic is missing that must not be created, or a pattern matches one that
                can't be read.
        """
        from ackfloor.kafka.topics.cluster_topics import Cluster, check_complete
        from ackfloor.kafka.topics.topic_requirements import Action

        timeout_s = (
            None
            if connect_timeout is None
            else parse_duration(connect_timeout, field="--connect-timeout")
        )
        cluster = Cluster(self.kafka_options())
        cluster.wait(timeout_s, stopping, waits)
        launch = self.matched_on(cluster)
        for (handler, pattern), topics in launch.matches.topics.items():
            found = listed(topics) or "no topic yet"
            log.info("handler %s: %s matches %s", handler, pattern, found)
        plans = launch.plan_topics(cluster)
        if self.settings.app.create_topics:
            for name in cluster.create(plans):
                log.info("created topic %s", name)
        else:
            check_complete(plans)
        for plan in plans:
            if plan.action is Action.LEFTOVER and self.app.broadcast:
                log.warning("topic %s: not consumed in broadcast mode", plan.topic)
            elif plan.action in (Action.DRIFT, Action.LEFTOVER):
                log.warning("topic %s: %s", plan.topic, "; ".join(plan.notes))

    def plan_topics(self, cluster: Cluster) -> tuple[TopicPlan, ...]:
        """Plan the retry and dead-letter topics; raises ConfigError if a source is missing."""
        return cluster.plan(
            self.handlers,
            self.settings.group,
            replication_factor=self.settings.app.replication_factor,
            dlq_retention_s=self.settings.app.dlq_retention_s,
        )

    # Patterns.

    @property
    def has_patterns(self) -> bool:
        """Whether a handler takes its topics by a pattern."""
        return any(spec.patterns for spec in self.handlers)

    def match(self, topics: Collection[str]) -> Matches:
        """What the patterns stand for where these topics exist.

        Handlers that do not run here count as well: they have the topics that they name.
        """
        return match(
            self.settings.applied(self.app.handlers),
            topics,
            self.settings.group,
            most=self.settings.app.max_pattern_topics,
            read={spec.name for spec in self.handlers},
        )

    def with_matches(self, matches: Matches) -> Launch:
        """The same with the topics that patterns match, of a launch that has none of them yet.

        Raises:
            TopicsMissing: no topic is left to be read; or a pattern matches none, where the group
                starts at `latest`: later it could not be told that its topics are new.
        """
        if not matches.topics:
            return self
        handlers = matches.applied(self.handlers)
        nothing = not any(spec.topics for spec in handlers)
        for (handler, pattern), topics in matches.topics.items():
            if not topics and (nothing or self.settings.app.start == "latest"):
                raise TopicsMissing(
                    f"handlers.{handler}.topics",
                    pattern,
                    "no topic's whole name matches (or this user may not see it)"
                    + ("" if nothing else ", and start='latest' needs one to tell later ones by"),
                    'create one, or correct the pattern; "^orders-.*" are names that begin with '
                    "orders-",
                )
        return replace(self, handlers=handlers, matches=matches)

    def like(self, other: Launch) -> Launch:
        """The same, as loaded, with the topics that the patterns of another launch stand for."""
        return replace(self, handlers=other.matches.applied(self.handlers), matches=other.matches)

    def as_matched(self, topics: Collection[str]) -> Launch:
        """The same with what patterns match among these topics; refuses nothing."""
        matches = self.match(topics) if self.has_patterns else Matches()
        return replace(self, handlers=matches.applied(self.handlers), matches=matches)

    def matched_on(self, cluster: Cluster) -> Launch:
        """The same with the topics that patterns match on a cluster, at the start of a run.

        Raises:
            ConfigError: a pattern matches a topic that can't be read, or more than allowed.
            TopicsMissing: see `with_matches`.
        """
        if not self.has_patterns:
            return self
        matches = self.match(cluster.names())
        matches.check()
        return self.with_matches(matches)

    def matched(
        self,
        stopping: Callable[[], bool] = lambda: False,
        waits: Callable[[str], None] = _ignore,
    ) -> Launch:
        """The same with the topics that patterns match now, for a worker: it leaves out the others.

        Raises:
            KafkaUnreachable: no broker answered before `stopping` returned True.
            TopicsMissing: see `with_matches`.
        """
        if not self.has_patterns:
            return self
        from ackfloor.kafka.topics.cluster_topics import Cluster

        cluster = Cluster(self.kafka_options())
        cluster.wait(None, stopping, waits)
        return self.with_matches(self._matched_topics(lambda: cluster).find())

    def _matched_topics(self, cluster: Callable[[], Cluster]) -> MatchedTopics:
        from ackfloor.kafka.topics.matched_topics import MatchedTopics

        return MatchedTopics(
            cluster,
            self.match,
            lambda cluster, specs: replace(self, handlers=specs).plan_topics(cluster),
            self.handlers,
            self.settings.group,
            create=self.settings.app.create_topics,
        )

    def _new_matches(self, client_suffix: str) -> NewMatches | None:
        if not self.has_patterns:
            return None
        from ackfloor.kafka.consume.new_matches import NewMatches
        from ackfloor.kafka.topics.cluster_topics import Cluster

        options = self.kafka_options(f"{client_suffix}-patterns")
        find = self._matched_topics(lambda: Cluster(options)).find
        return NewMatches(find, self.matches, self.settings.app.pattern_interval_s)

    def topology(
        self,
        stopping: Callable[[], bool] = lambda: False,
        waits: Callable[[str], None] = _ignore,
    ) -> Topology:
        """The topics that a worker reads and parks in, as the cluster has them now.

        Raises:
            KafkaUnreachable: no broker answered before `stopping` returned True.
            ConfigError: a topic is missing.
        """
        from ackfloor.kafka.topics.cluster_topics import Cluster, routes_of
        from ackfloor.kafka.topics.topic_requirements import Action

        cluster = Cluster(self.kafka_options())
        cluster.wait(None, stopping, waits)
        plans = self._plans(cluster, stopping)
        partitions = {plan.topic: plan.partitions for plan in plans}
        routes = routes_of(plans, self.handlers)
        sources = [topic for spec in self.handlers for topic in spec.topics]
        if self.app.broadcast:
            # Retry topics from an earlier run in group mode are not read here.
            routes = {topic: route for topic, route in routes.items() if route.tier_s is None}
        spare = frozenset(plan.topic for plan in plans if plan.action is Action.LEFTOVER)
        return Topology(routes, partitions, spare, cluster.partition_counts(sources))

    def _plans(self, cluster: Cluster, stopping: Callable[[], bool]) -> tuple[TopicPlan, ...]:
        from ackfloor.kafka.topics.cluster_topics import check_complete

        until_s = time.monotonic() + TOPICS_S
        while True:
            try:
                plans = self.plan_topics(cluster)
                check_complete(plans)
            except ConfigError:
                # A topic that was just created is not known to every broker at once.
                if stopping() or time.monotonic() >= until_s:
                    raise
                time.sleep(TOPICS_PAUSE_S)
            else:
                return plans

    def outside(
        self,
        events: EventLoop,
        client_suffix: str,
        topology: Topology,
        *,
        watched: Collection[str] = (),
    ) -> Outside:
        """The Kafka side of a worker; it fails when a watched topic is created anew."""
        from ackfloor.kafka.consume.broadcast_source import KafkaBroadcastSource
        from ackfloor.kafka.consume.copartitioned_retry_topics import CopartitionedRetryTopics
        from ackfloor.kafka.consume.new_retry_topics import NewTiers
        from ackfloor.kafka.consume.source import KafkaSource
        from ackfloor.kafka.produce.publisher import KafkaPublisher
        from ackfloor.kafka.produce.sink import KafkaSink
        from ackfloor.kafka.produce.transactional_sink import KafkaTransactionalSink

        app = self.settings.app
        options = self.kafka_options(client_suffix)
        group = self.settings.group
        low_priority_topics = topology.low_priority_topics()
        quarantined_topics = topology.quarantined_topics()
        return Outside(
            KafkaBroadcastSource(options, group, watched=watched, spare=topology.spare)
            if self.app.broadcast
            else KafkaSource(
                options,
                group,
                app.start,
                drain_s=app.drain_timeout_s,
                instance_id=self.instance_id(client_suffix) if app.static_membership else None,
                watched=watched,
                spare=topology.spare,
                low_priority_topics=low_priority_topics,
                copartitioned=CopartitionedRetryTopics(low_priority_topics, topology.partitions),
                new_tiers=NewTiers(options, group, set(quarantined_topics.values())),
                quarantined_topics=quarantined_topics,
                new_matches=self._new_matches(client_suffix),
                siblings=self.matches.siblings(),
            ),
            KafkaTransactionalSink(options, group, self.transactional_id(client_suffix))
            if app.transactional
            else KafkaSink(options),
            KafkaPublisher(options),
            SystemClock(),
            events,
        )

    def transactional_id(self, worker: str) -> str:
        """The transactional id of a worker and its successor; unique to them."""
        prefix = self.settings.app.transactional_id_prefix
        if prefix is None:
            prefix = f"{self.settings.group}-{gethostname()}"
        return f"{prefix}-{worker}"

    def instance_id(self, worker: str) -> str:
        """A worker's instance id in the group, which its successor takes over."""
        host = re.sub("[^A-Za-z0-9._-]", "-", gethostname())
        return f"{self.settings.app.instance_id_prefix}-{host}-{worker}"

    def kafka_options(self, client_suffix: str = "") -> KafkaOptions:
        """The clients' properties; a refused one raises ConfigError when a client is made."""
        from ackfloor.kafka.client.client_options import KafkaOptions

        return KafkaOptions.of(self.settings.kafka, client_suffix)

    def worker_config(self, worker: str = "worker-0") -> WorkerConfig:
        """The settings that the worker of this name needs."""
        app = self.settings.app
        return WorkerConfig(
            group=self.settings.group,
            limits=app.limits,
            commit_interval_s=app.commit_interval_s,
            commit_count=app.commit_count,
            drain_s=app.drain_timeout_s,
            shutdown_s=app.shutdown_timeout_s,
            cancel_grace_s=app.cancel_grace_s,
            max_abandoned=app.max_abandoned_threads,
            release=app.release or os.environ.get("ACKFLOOR_RELEASE"),
            worker=f"{gethostname()}/{worker}" if self.app.broadcast else None,
            spring_headers="spring" in app.foreign_headers,
            kafka_headers="kafka" in app.foreign_headers,
            transactional=app.transactional,
            redaction=self.settings.redaction.rules(),
            registry=self.settings.registry,
        )

    @contextmanager
    def lag_watch(self, monitor: RunMonitor | None) -> Iterator[None]:
        """Read lag and dead letters from Kafka regularly, if there is a monitor to pass them to."""
        every_s = self.settings.app.look_interval_s
        if monitor is None or every_s is None:
            yield
            return
        watch = LagWatch(self.looking(), monitor.progress, every_s)
        watch.start()
        try:
            yield
        finally:
            watch.stop()

    def looking(self) -> Looking:
        """How the run asks Kafka for its group's progress."""
        from ackfloor.kafka.inspection.group_progress import looking_at

        return partial(looking_at, self.kafka_options("look"), self.settings.group)

    @staticmethod
    def monitoring() -> MonitoringPlugin | None:
        """The installed monitoring plugin; None if there is none."""
        for entry in entry_points(group="ackfloor.monitoring"):
            plugin: MonitoringPlugin = entry.load()
            return plugin
        return None
