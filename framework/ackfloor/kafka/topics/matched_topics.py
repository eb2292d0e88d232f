"""MatchedTopics: the topics that patterns stand for now, with what they need to be read.

A topic that a pattern matches is read only once its retry and dead-letter topics exist, because a
failed record could not be parked until then. Where the settings allow it they are created here: by
the worker that finds the topic while it runs, before it is replaced by one that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ackfloor.declare.registration import HandlerSpec
from ackfloor.declare.topic_patterns import LeftOut, Matches, listed, own_topics
from ackfloor.errors import AckfloorError, ConfigError, StartError
from ackfloor.kafka.topics.cluster_topics import Cluster
from ackfloor.kafka.topics.topic_requirements import TopicPlan

#: Finds out what the patterns of the app stand for among these topics.
Match = Callable[[Collection[str]], Matches]
#: Plans the retry and dead-letter topics of handlers.
Plan = Callable[[Cluster, tuple[HandlerSpec, ...]], tuple[TopicPlan, ...]]


class MatchedTopics:
    """Asks a cluster which topics match, and completes those that are new.

    Args:
        cluster: connects when it is first needed.
        match: the patterns.
        plan: what a handler's topics need.
        specs: the handlers that run, as registered, settings applied.
        group: the consumer group.
        create: whether what is missing is created.
    """

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        match: Match,
        plan: Plan,
        specs: Iterable[HandlerSpec],
        group: str,
        *,
        create: bool,
    ) -> None:
        self._connect = cluster
        self._match = match
        self._plan = plan
        self._specs = tuple(specs)
        self._group = group
        self._create = create
        self._cluster: Cluster | None = None

    def find(self) -> Matches:
        """What the patterns stand for now; what can't be completed is left out.

        Raises:
            KafkaUnreachable: no broker answers.
            ConfigError: a property of the client is refused.
        """
        if self._cluster is None:
            self._cluster = self._connect()
        names = self._cluster.names()
        matches = self._match(names)
        left_out: dict[str, LeftOut] = {}
        for spec in self._specs:
            for topic in matches.of(spec.name):
                missing = own_topics(spec, topic, self._group) - names
                if missing and (why := self._completed(self._cluster, spec, topic, missing)):
                    left_out[topic] = why
        return matches.without(left_out)

    def _completed(
        self, cluster: Cluster, spec: HandlerSpec, topic: str, missing: Collection[str]
    ) -> LeftOut | None:
        """Create what a topic lacks; returns why it is still lacking."""
        pattern = spec.pattern_of(topic) or ""
        lacks = f"topic {topic} matches and is not read: it lacks {listed(missing)}"
        if not self._create:
            fix = "`ackfloor topics apply MODULE:APP` makes them, or set create_topics=true"
            return LeftOut(spec.name, pattern, lacks, fix)
        try:
            cluster.create(self._plan(cluster, (only(spec, topic),)))
        except (ConfigError, StartError) as exc:
            return LeftOut(spec.name, pattern, f"{lacks}: {_reason(exc)}", "it is tried again")
        return None


def only(spec: HandlerSpec, topic: str) -> HandlerSpec:
    """A handler as if it took one topic alone."""
    return replace(spec, topics=(topic,), patterns=())


def _reason(exc: AckfloorError) -> str:
    return exc.why if isinstance(exc, ConfigError) else str(exc)
