"""Topic patterns: which topics of a cluster `@app.handler("^orders-.*")` stands for.

Everything else knows topics by their names alone: a pattern is turned into names before the engine,
the consumer or the plan of retry topics sees it. The rules:

* P1: the whole name has to match, as in Kafka's own clients and brokers.
* P2: our own topics, those of other groups included, never match, nor do Kafka's own (`__...`), nor
  any name that a handler could not take literally.
* P3: a topic that a handler of the app names is that handler's, whichever handlers run here.
* P4: a topic that patterns of two handlers match is read by neither. A group that shared it out
  between both would have each record handled by one of them, by chance.
* P5: a pattern stands for so many topics at most. Those with a dead-letter topic of the group come
  first, because they are read already; so all workers choose the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ackfloor.core.parking.topic_names import (
    check_names,
    check_source_topic,
    dlq_topic,
    tier_topic,
)
from ackfloor.core.values.setting_error import SettingError
from ackfloor.declare.registration import HandlerSpec
from ackfloor.errors import ConfigError

#: How the names of Kafka's own topics begin.
_KAFKAS = "__"
#: As many topics are named in a line.
NAMED = 10


class LeftOut(NamedTuple):
    """Why a topic that a pattern matches is not read, and what to do."""

    handler: str
    pattern: str
    why: str
    fix: str

    @property
    def error(self) -> ConfigError:
        """The error that refuses it at the start of a run."""
        return ConfigError(f"handlers.{self.handler}.topics", self.pattern, self.why, self.fix)


@dataclass(frozen=True, slots=True)
class Matches:
    """What the patterns of an app's handlers stand for on a cluster.

    Attributes:
        topics: (handler, pattern) -> its topics, sorted; each topic is there once.
        left_out: topics that match and are not read.
    """

    topics: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    @property
    def all(self) -> frozenset[str]:
        """All topics that are read because a pattern matches them."""
        return frozenset(topic for found in self.topics.values() for topic in found)

    def of(self, handler: str) -> tuple[str, ...]:
        """The topics that the patterns of a handler stand for."""
        return tuple(
            t for (name, _), found in self.topics.items() if name == handler for t in found
        )

    def applied(self, specs: Iterable[HandlerSpec]) -> tuple[HandlerSpec, ...]:
        """The handlers, as registered, with these topics as if they were named."""
        return tuple(
            replace(spec, topics=(*spec.topics, *self.of(spec.name))) if spec.patterns else spec
            for spec in specs
        )

    def siblings(self) -> dict[str, frozenset[str]]:
        """Topic -> all topics of its pattern, itself included."""
        return {topic: frozenset(found) for found in self.topics.values() for topic in found}

    def without(self, left_out: Mapping[str, LeftOut]) -> Matches:
        """The same, but that these are left out as well."""
        kept = {
            pattern: tuple(topic for topic in found if topic not in left_out)
            for pattern, found in self.topics.items()
        }
        return Matches(kept, {**self.left_out, **left_out})

    def check(self) -> None:
        """Refuse to leave a topic out; raises ConfigError, which names the first one."""
        for left_out in self.left_out.values():
            raise left_out.error


def match(
    specs: Sequence[HandlerSpec],
    existing: Collection[str],
    group: str,
    *,
    most: int,
    read: Collection[str] | None = None,
) -> Matches:
    """Find out what patterns stand for.

    Args:
        specs: all handlers of the app, as registered, settings applied.
        existing: the cluster's topics.
        group: the consumer group.
        most: how many topics one pattern may stand for.
        read: the names of the handlers that run; None for all.
    """
    running = {spec.name for spec in specs} if read is None else set(read)
    named = {topic for spec in specs for topic in spec.topics}
    found: dict[tuple[str, str], list[str]] = {
        (spec.name, pattern): []
        for spec in specs
        if spec.name in running
        for pattern in spec.patterns
    }
    left_out: dict[str, LeftOut] = {}
    for topic in sorted(existing):
        if topic in named or not _may_match(topic):
            continue
        takers = [(s, pattern) for s in specs if (pattern := s.pattern_of(topic)) is not None]
        if not any(spec.name in running for spec, _ in takers):
            continue
        why_not = _overlap(topic, takers) or _unfit(topic, *takers[0], group)
        if why_not is not None:
            left_out[topic] = why_not
        else:
            found[takers[0][0].name, takers[0][1]].append(topic)
    for (handler, pattern), topics in found.items():
        left_out.update(_beyond(handler, pattern, topics, existing, group, most))
    return Matches({key: tuple(topics) for key, topics in found.items()}).without(left_out)


def own_topics(spec: HandlerSpec, topic: str, group: str) -> set[str]:
    """The retry topics and the dead-letter topic that a source topic of a handler needs."""
    return {dlq_topic(topic, group), *(tier_topic(topic, group, s) for s in spec.tiers())}


def listed(topics: Collection[str]) -> str:
    """Topics for a line of text: the first few by name, and how many more."""
    more = len(topics) - NAMED
    return ", ".join(sorted(topics)[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _may_match(topic: str) -> bool:
    if topic.startswith(_KAFKAS):
        return False
    try:
        check_source_topic(topic)
    except SettingError:
        return False
    return True


def _overlap(topic: str, takers: Sequence[tuple[HandlerSpec, str]]) -> LeftOut | None:
    if len(takers) == 1:
        return None
    (spec, pattern), (other, others_pattern), *_ = takers
    return LeftOut(
        spec.name,
        pattern,
        f"topic {topic} is also matched by {others_pattern!r} of handler {other.name!r}, and a "
        "topic has one handler",
        "narrow one of the patterns, or name the topic in the handler that is to have it",
    )


def _unfit(topic: str, spec: HandlerSpec, pattern: str, group: str) -> LeftOut | None:
    try:
        check_names([topic], group, spec.tiers())
    except SettingError as exc:
        return LeftOut(
            spec.name,
            pattern,
            f"topic {topic} matches, and its retry or dead-letter topics can't be named: {exc.why}",
            "narrow the pattern so that the topic does not match, or shorten the group",
        )
    return None


def _beyond(
    handler: str,
    pattern: str,
    topics: Sequence[str],
    existing: Collection[str],
    group: str,
    most: int,
) -> dict[str, LeftOut]:
    """The topics of a pattern that are too many."""
    ranked = sorted(topics, key=lambda topic: (dlq_topic(topic, group) not in existing, topic))
    beyond = ranked[most:]
    why = (
        f"{len(topics)} topics match, and a pattern may stand for {most} "
        f"(app.max_pattern_topics); beyond that are {listed(beyond)}"
    )
    fix = "raise the setting, or narrow the pattern"
    return {topic: LeftOut(handler, pattern, why, fix) for topic in beyond}
