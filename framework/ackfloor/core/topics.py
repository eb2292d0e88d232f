"""Topic names: of retry tiers, dead letters and dispositions, and which names are refused.

A name is `{topic}--{group}--retry-{delay}` and so on. `--` is reserved, so a name splits in one
way only, and the group is part of it, so two groups never see each other's retries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ackfloor.core.durations import format_exact_unit, parse_duration
from ackfloor.core.errors import SettingError

LONGEST_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_OURS = re.compile(
    r"(?P<topic>.+?)--(?P<group>.+?)--(?:retry-(?P<delay>\d+(?:ms|s|m|h|d))|(?P<kind>dlq|dispositions))"
)
_FIX = "choose another name"


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """One of our own topics, taken apart; `delay_s` in seconds where it is a retry tier."""

    topic: str
    group: str
    kind: Literal["retry", "dlq", "dispositions"]
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicTemplates:
    """How our topics are named."""

    tier: str = "{topic}--{group}--retry-{delay}"
    dlq: str = "{topic}--{group}--dlq"
    dispositions: str = "{topic}--{group}--dispositions"

    def tier_topic(self, topic: str, group: str, delay_s: float) -> str:
        """The retry topic of one delay."""
        return self.tier.format(topic=topic, group=group, delay=format_exact_unit(delay_s))

    def dlq_topic(self, topic: str, group: str) -> str:
        """The dead-letter topic."""
        return self.dlq.format(topic=topic, group=group)

    def dispositions_topic(self, topic: str, group: str) -> str:
        """The compacted topic that says what was done with each dead letter."""
        return self.dispositions.format(topic=topic, group=group)


_DEFAULT = TopicTemplates()
tier_topic = _DEFAULT.tier_topic
dlq_topic = _DEFAULT.dlq_topic
dispositions_topic = _DEFAULT.dispositions_topic


def parse_topic(name: str) -> ParsedTopic | None:
    """Take one of our topic names apart; None where it is not one."""
    match = _OURS.fullmatch(name)
    if match is None:
        return None
    topic, group, delay = match["topic"], match["group"], match["delay"]
    if delay is not None:
        delay_s = parse_duration(delay, field="topic")
        if delay_s <= 0 or format_exact_unit(delay_s) != delay:
            return None
        return ParsedTopic(topic, group, "retry", delay_s)
    kind: Literal["dlq", "dispositions"] = "dlq" if match["kind"] == "dlq" else "dispositions"
    return ParsedTopic(topic, group, kind)


def check_group(group: str) -> None:
    """Refuse a group name that can't be part of a topic name."""
    _check("group", group)


def check_source_topic(topic: str) -> None:
    """Refuse a source topic that is illegal, or whose retry topics could not be told apart."""
    _check("topic", topic)


def _check(field: str, name: str) -> None:
    if not name:
        raise SettingError(field, name, "empty", "give a name")
    if not _LEGAL.fullmatch(name) or name in (".", ".."):
        raise SettingError(
            field, name, "Kafka allows letters, digits, '.', '_' and '-' in topic names",
            f"rename it: our topics carry the {field}'s name",
        )  # fmt: skip
    if "--" in name or name.startswith("-") or name.endswith("-"):
        raise SettingError(
            field, name, "'--' separates the parts of our topic names and must stay unambiguous",
            "use single dashes, inside the name only",
        )  # fmt: skip
    if len(name) > LONGEST_NAME:
        raise SettingError(field, name[:40] + "...", f"over {LONGEST_NAME} characters", _FIX)


def check_names(topics: Iterable[str], group: str, tiers: Iterable[float]) -> None:
    """Refuse sources whose tiers or dead-letter topics would be too long or collide.

    Kafka's metrics fold '.' into '_', so it refuses a topic whose name differs from another's
    only there.
    """
    seen: dict[str, str] = {}
    delays = list(tiers)
    for topic in topics:
        names = [topic, dlq_topic(topic, group), dispositions_topic(topic, group)]
        names += [tier_topic(topic, group, delay_s) for delay_s in delays]
        for name in names:
            if len(name) > LONGEST_NAME:
                raise SettingError(
                    "topic", topic, f"{name} would have {len(name)} characters, Kafka allows "
                    f"{LONGEST_NAME}", _FIX,
                )  # fmt: skip
            folded = name.replace(".", "_")
            other = seen.setdefault(folded, name)
            if other != name:
                raise SettingError(
                    "topic", name, f"Kafka can't tell it from {other} ('.' and '_' collide)", _FIX
                )
