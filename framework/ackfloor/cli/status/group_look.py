"""GroupLook: what Kafka says of one group, read within bounds.

A look has to be quick however much there is: totals come from commits and log ends. Only of what
waits in retry topics, and of the newest dead letters, are some records read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ackfloor.cli.shared.read_count import counted
from ackfloor.core.acks.tier_counts import TierCount
from ackfloor.core.parking.topic_names import parse_topic
from ackfloor.core.records.envelope import FAILED_AT, read_number
from ackfloor.dead_letters.rules.cause_groups import CauseGroup, CauseGroups
from ackfloor.dead_letters.rules.redrive_jobs import JobNote, JobState
from ackfloor.dead_letters.rules.waiting import count_waiting
from ackfloor.errors import AckfloorError, KafkaUnreachable

if TYPE_CHECKING:
    from ackfloor.core.acks.progress import Progress
    from ackfloor.dead_letters.kafka.dead_letter_topic import DeadLetterTopics
    from ackfloor.dead_letters.kafka.retry_topic import RetryTopics
    from ackfloor.dead_letters.rules.redrive_rules import DeadLetter
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
        jobs: dead-letter topic with open dead letters -> the job that works on it.
        failed_ms: source topic -> when the last of what is open in its retry and dead-letter topics
            failed, in wall-clock ms; only where all that waits was read.
        errors: what could not be read, and why.
    """

    group: str
    members: int | None = None
    progress: Sequence[Progress] = ()
    tiers: dict[str, TierCount] = field(default_factory=dict)
    causes: Sequence[CauseGroup] = ()
    dead: int = 0
    jobs: dict[str, JobNote] = field(default_factory=dict)
    failed_ms: dict[str, int] = field(default_factory=dict)
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


def looks(
    options: KafkaOptions, groups: Sequence[str] | None, more: Sequence[str] = ()
) -> Iterator[GroupLook]:
    """A look at each of these groups, or at all with retry or dead-letter topics.

    Args:
        more: groups to look at as well.

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
        for group in sorted({*(reader.groups() if groups is None else groups), *more}):
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
    cut = set[str]()
    for topic in look.open_by_topic("retry"):
        source = source_of(topic)
        with closing(counted(topics.open(topic), topic)) as records:
            first = islice(records, MOST_WAITING)
            now_ms = time.time_ns() // 1_000_000
            count = count_waiting(_noting_failures(look, source, first), now_ms)
        look.tiers[topic] = count
        if count.waiting + count.due + count.behind >= MOST_WAITING:
            cut.add(source)
    for source in cut:
        look.failed_ms.pop(source, None)


def source_of(topic: str) -> str:
    """The source topic of a retry or dead-letter topic; any other topic itself."""
    parsed = parse_topic(topic)
    return topic if parsed is None else parsed.topic


def _noting_failures(
    look: GroupLook, source: str, records: Iterable[DeadLetter]
) -> Iterator[DeadLetter]:
    """The same records; when the last of them failed is noted."""
    for record in records:
        # Of 10,000 records one header alone is decoded.
        failed_ms = read_number(dict(record.headers or ()).get(FAILED_AT))
        if failed_ms is not None:
            look.failed_ms[source] = max(failed_ms, look.failed_ms.get(source, failed_ms))
        yield record


def _read_dead(look: GroupLook, topics: DeadLetterTopics) -> None:
    """Read the end of each partition, and group what is open by its cause."""
    from ackfloor.dead_letters.kafka.redrive_notes import state_of

    found = CauseGroups()
    for topic, parts in look.open_by_topic("dlq").items():
        for note in topics.jobs(topic):
            if state_of(note) is JobState.RUNNING:
                look.jobs[topic] = note
        for partition, each in parts.items():
            starts = {partition: (each.end or 0) - MOST_DEAD}
            for stored in counted(topics.dead_letters(topic, partition, starts), topic):
                if not stored.disposed:
                    look.dead += 1
                    found.add(stored.dead_letter)
    look.causes = sorted(found.largest_first(), key=lambda cause: -cause.last_ms)
    for cause in look.causes:
        source = source_of(cause.topic)
        if source in look.failed_ms:
            look.failed_ms[source] = max(cause.last_ms, look.failed_ms[source])
