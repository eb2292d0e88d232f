"""Topic names: of retry tiers, dead letters and dispositions, and which names are refused.

A name is `{topic}--{group}--retry-{delay}` and so on. `--` is reserved: no topic or group we
accept contains it, or starts or ends with a dash. So a name splits in one way only, and since
the group is part of it, two groups never see each other's retries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from string import Formatter
from typing import Literal

from ackfloor.core.values.durations import LONGEST_S, format_exact_unit
from ackfloor.core.values.setting_error import SettingError

#: Kafka's limit: a topic is a folder, and its partition number is appended to the name.
LONGEST_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
# What `check_group` and `check_source_topic` accept: single dashes, inside only.
_PART = r"[a-zA-Z0-9._]+(?:-[a-zA-Z0-9._]+)*"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PATTERNS = {
    "topic": rf"(?P<topic>{_PART})",
    "group": rf"(?P<group>{_PART})",
    "delay": rf"(?P<count>[1-9][0-9]{{0,11}})(?P<unit>{'|'.join(_UNITS_S)})",
}

Kind = Literal["retry", "dlq", "dispositions"]


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """One of our own topics, taken apart; `delay_s` in seconds where it is a retry tier."""

    topic: str
    group: str
    kind: Kind
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicTemplates:
    """How our topics are named.

    Raises:
        SettingError: a template lacks a placeholder, repeats one or has an unknown one.
    """

    tier: str = "{topic}--{group}--retry-{delay}"
    dlq: str = "{topic}--{group}--dlq"
    dispositions: str = "{topic}--{group}--dispositions"
    _patterns: tuple[tuple[Kind, re.Pattern[str]], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        kinds: tuple[Kind, ...] = ("retry", "dlq", "dispositions")
        patterns = []
        for kind, setting in zip(kinds, fields(self), strict=False):
            wanted = ["topic", "group", "delay"] if kind == "retry" else ["topic", "group"]
            template = getattr(self, setting.name)
            patterns.append((kind, _pattern(f"topics.{setting.name}_template", template, wanted)))
        object.__setattr__(self, "_patterns", tuple(patterns))

    def tier_topic(self, topic: str, group: str, delay_s: float) -> str:
        """The retry topic of one delay."""
        return self.tier.format(topic=topic, group=group, delay=format_exact_unit(delay_s))

    def dlq_topic(self, topic: str, group: str) -> str:
        """The dead-letter topic."""
        return self.dlq.format(topic=topic, group=group)

    def dispositions_topic(self, topic: str, group: str) -> str:
        """The compacted topic that says what was done with each dead letter."""
        return self.dispositions.format(topic=topic, group=group)

    def parse(self, name: str) -> ParsedTopic | None:
        """Take one of our topic names apart; None where it is not one."""
        for kind, pattern in self._patterns:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            if kind != "retry":
                return ParsedTopic(match["topic"], match["group"], kind)
            delay_s = round(int(match["count"]) * _UNITS_S[match["unit"]], 3)
            # "60s" is not how we write a minute: the name is somebody else's.
            if (
                delay_s <= LONGEST_S
                and format_exact_unit(delay_s) == match["count"] + match["unit"]
            ):
                return ParsedTopic(match["topic"], match["group"], kind, delay_s)
        return None


def _pattern(setting: str, template: str, wanted: list[str]) -> re.Pattern[str]:
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        parts = []
    names = [name for _, name, spec, conversion in parts if name is not None]
    plain = all(not spec and not conversion for _, _, spec, conversion in parts)
    if sorted(names) != sorted(wanted) or not plain:
        placeholders = ", ".join(f"{{{name}}}" for name in wanted)
        raise SettingError(
            setting, template, "names made from it can't be taken apart again",
            f"use each of {placeholders} exactly once",
        )  # fmt: skip
    return re.compile(
        "".join(re.escape(text) + (_PATTERNS[name] if name else "") for text, name, _, _ in parts)
    )


_DEFAULT = TopicTemplates()
tier_topic = _DEFAULT.tier_topic
dlq_topic = _DEFAULT.dlq_topic
dispositions_topic = _DEFAULT.dispositions_topic
parse_topic = _DEFAULT.parse


def check_group(group: str) -> None:
    """Refuse a group name that can't be part of a topic name."""
    _check("group", group)


def check_source_topic(topic: str) -> None:
    """Refuse a source topic that is illegal, or whose retry topics could not be told apart."""
    _check("topic", topic)


def _check(setting: str, name: str) -> None:
    if not name:
        raise SettingError(setting, name, "empty", "give a name")
    if len(name) > LONGEST_NAME:
        why = f"over {LONGEST_NAME} characters"
        raise SettingError(setting, f"{name[:40]}...", why, "shorten it")
    if not _LEGAL.fullmatch(name) or name in (".", ".."):
        why = "Kafka allows letters, digits, '.', '_' and '-' in topic names"
        raise SettingError(setting, name, why, f"rename it: our topics carry the {setting}'s name")
    if "--" in name or name.startswith("-") or name.endswith("-"):
        why = "'--' separates the parts of our topic names and must stay unambiguous"
        fix = "use single dashes, inside the name only"
        raise SettingError(setting, name, why, fix)


def check_names(
    topics: Iterable[str],
    group: str,
    tiers: Iterable[float],
    templates: TopicTemplates = _DEFAULT,
) -> None:
    """Refuse sources whose tiers or dead-letter topics would be illegal or mistaken for others.

    Kafka's metrics fold '.' into '_', so it refuses a topic whose name differs from another's
    only there.

    Args:
        topics: the source topics of one group.
        tiers: the delays in seconds that each of them has a retry topic for.
    """
    delays = list(tiers)
    # By its folded name: the topic, and the source it was made from ("" for a source itself).
    seen: dict[str, tuple[str, str]] = {}
    for topic in topics:
        _claim(seen, topic, topic, "")
        for kind, name in _made_from(topic, group, delays, templates):
            _check_made(topic, name)
            parsed = templates.parse(name)
            if parsed is None or (parsed.topic, parsed.group, parsed.kind) != (topic, group, kind):
                why = f"{name} can be read in two ways"
                raise SettingError("topic", topic, why, "rename it")
            _claim(seen, topic, name, topic)


def _made_from(
    topic: str, group: str, delays: Iterable[float], templates: TopicTemplates
) -> list[tuple[Kind, str]]:
    made: list[tuple[Kind, str]] = [
        ("dlq", templates.dlq_topic(topic, group)),
        ("dispositions", templates.dispositions_topic(topic, group)),
    ]
    return made + [("retry", templates.tier_topic(topic, group, delay_s)) for delay_s in delays]


def _check_made(topic: str, name: str) -> None:
    if len(name) > LONGEST_NAME:
        why = f"{name} would have {len(name)} characters, Kafka allows {LONGEST_NAME}"
        raise SettingError("topic", topic, why, "shorten it or the group")
    if not _LEGAL.fullmatch(name):
        why = f"{name} would not be a topic name: letters, digits, '.', '_' and '-' only"
        raise SettingError("topic", topic, why, "rename it")


def _claim(seen: dict[str, tuple[str, str]], topic: str, name: str, source: str) -> None:
    other, other_source = seen.setdefault(name.replace(".", "_"), (name, source))
    if (other, other_source) == (name, source):
        return
    why = (
        f"{name} would be two topics" if other == name
        else f"Kafka can't tell {name} from {other} ('.' and '_' collide)"
    )  # fmt: skip
    raise SettingError("topic", topic, why, "rename it")
