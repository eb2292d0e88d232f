"""GroupLook: what Kafka says of one group, read within bounds.

A look has to be quick however much there is: totals come from commits and log ends. Only of what
waits in retry topics, and of the newest dead letters, are some records read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ackfloor.cli.shared.read_count import counted
from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.dead_letters.rules.cause_groups import CauseGroup, CauseGroups
from ackfloor.dead_letters.rules.waiting import count_waiting
from ackfloor.errors import AckfloorError, KafkaUnreachable

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics
    from ackfloor.kafka.client.client_options import KafkaOptions
    from ackfloor.kafka.inspection.group_progress import ProgressReader

#: So many records of a retry topic are read, and so many of a partition of a dead-letter topic.
MOST_WAITING: Final = 10_000
MOST_DEAD: Final = 1_000


@dataclass(slots=True)
class GroupLook:
    """One group.

    Attributes:
        members: how many it has; None where the broker does not tell.
        progress: of each partition, as `lag` reads it.
        tiers: retry topic -> what waits in it.
        causes: of the newest dead letters that are open, the newest first.
        dead: how many of those were read.
        errors: what could not be read, and why.
    """

    group: str
    members: int | None = None
    progress: Sequence[Progress] = ()
    tiers: dict[str, TierCount] = field(default_factory=dict)
    causes: Sequence[CauseGroup] = ()
    dead: int = 0
    errors: list[str] = field(default_factory=list)

    def open_by_topic(self, *kinds: str) -> dict[str, dict[int, Progress]]:
        """Topic -> partition -> progress, of these kinds, where records are open."""
        found: dict[str, dict[int, Progress]] = {}
        for each in self.progress:
            if each.kind in kinds and open_in(each):
                found.setdefault(each.topic, {})[each.partition] = each
        return found


def open_in(progress: Progress) -> int:
    """How many records of a partition are open; 0 where it is not known.

    A retry topic is read from its first record. Where a group begins in a source topic is a
    setting.
    """
    if progress.open is None and progress.kind == "retry":
        return max(0, (progress.end or 0) - (progress.start or 0))
    return progress.open or 0


def looks(options: KafkaOptions, groups: Sequence[str] | None) -> Iterator[GroupLook]:
    """A look at each of these groups, or at all with retry or dead-letter topics.

    Raises:
        ConfigError: a client property is refused.
        KafkaUnreachable: no broker answers.
    """
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics
    from ackfloor.kafka.inspection.group_progress import ProgressReader

    with closing(ProgressReader(options)) as reader:
        reader.reach()
        retry, dead = RetryTopics(options), DeadLetterTopics(options)
        for group in reader.groups() if groups is None else groups:
            look = GroupLook(group)
            reads = (
                partial(_read_progress, look, reader),
                partial(_read_waiting, look, retry),
                partial(_read_dead, look, dead),
            )
            for read in reads:
                try:
                    read()
                except KafkaUnreachable:
                    raise
                except AckfloorError as exc:  # a missing permission: the rest is told
                    look.errors.append(str(exc))
            yield look


def _read_progress(look: GroupLook, reader: ProgressReader) -> None:
    members = reader.members(look.group)
    look.members = members.number if members.known else None
    look.progress = reader.of(look.group, members.owners)


def _read_waiting(look: GroupLook, topics: RetryTopics) -> None:
    for topic in look.open_by_topic("retry"):
        with closing(counted(topics.open(topic), topic)) as records:
            now_ms = time.time_ns() // 1_000_000
            look.tiers[topic] = count_waiting(islice(records, MOST_WAITING), now_ms)


def _read_dead(look: GroupLook, topics: DeadLetterTopics) -> None:
    """Read the end of each partition, and group what is open by its cause."""
    found = CauseGroups()
    for topic, parts in look.open_by_topic("dlq").items():
        for partition, each in parts.items():
            starts = {partition: (each.end or 0) - MOST_DEAD}
            for dead_letter, disposed in counted(
                topics.dead_letters(topic, partition, starts), topic
            ):
                if not disposed:
                    look.dead += 1
                    found.add(dead_letter)
    look.causes = sorted(found.largest_first(), key=lambda cause: -cause.last_ms)
